"""The state host: a process per slot that keeps the state of its subtasks between micro-batches."""
