"""The input of an operator: rows with their keys, rows from the side, and the time."""
