"""The input of an operator: keyed rows, rows of side inputs, and the time."""
