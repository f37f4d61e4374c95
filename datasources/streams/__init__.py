"""Streams a state and its changes."""
