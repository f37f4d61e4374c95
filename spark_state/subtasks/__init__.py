"""The subtasks of an operator, and the state of a subtask from epoch to epoch."""
