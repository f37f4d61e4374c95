"""Processors that get and yield Arrow, many keys with a call."""
