"""Savepoints of operators, and restoring a store from a savepoint."""
