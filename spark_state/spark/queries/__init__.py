"""Queries that run operators: checks before a start, the epochs of a run, and its progress."""
