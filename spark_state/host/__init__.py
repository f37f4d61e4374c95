"""State hosts: processes of an executor that keep the state of subtasks between micro-batches."""
