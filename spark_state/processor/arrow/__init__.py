"""Processors that get and yield Arrow data, many keys in one call."""
