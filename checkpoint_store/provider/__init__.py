"""Readers of the state store provider's files, without Spark."""
