"""State without a key, of a subtask: lists that are dealt out, unions, and broadcast maps.

    split       a list; at another parallelism the items of all subtasks are dealt out
    union       a list; every subtask gets the items of all
    broadcast   a map that is the same on every subtask

It is small: it is held in memory and written whole with every snapshot. Source of the model: Flink
1.9, DefaultOperatorStateBackend and RoundRobinOperatorStateRepartitioner.
"""
