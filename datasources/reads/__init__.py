"""Reads a state, or a table, as a DataFrame."""
