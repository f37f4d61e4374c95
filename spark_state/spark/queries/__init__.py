"""Queries with operators: checks before a start, the epochs of a run, and the progress of a run."""
