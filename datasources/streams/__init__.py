"""Streaming a state and its changes."""
