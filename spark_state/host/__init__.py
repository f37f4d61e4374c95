"""The state host: a process per slot that keeps subtasks between micro-batches."""
