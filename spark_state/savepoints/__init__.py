"""Savepoints of operators, and stores that are made of them."""
