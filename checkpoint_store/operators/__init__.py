"""Stores of operators: completed checkpoints, retention, clean-up, and readers."""
