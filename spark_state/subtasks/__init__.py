"""The subtasks of an operator: the state of each, from epoch to epoch."""
