"""State of a subtask without a key: split lists, union lists, and broadcast maps.

    split       a list; if the parallelism changes, the items of all subtasks are dealt out
    union       a list; after a restore every subtask gets the items of all subtasks
    broadcast   a map that is the same on every subtask

Operator state is small: it is held in memory and written whole with every snapshot. Source of the
model: Flink 1.9, DefaultOperatorStateBackend and RoundRobinOperatorStateRepartitioner.
"""
