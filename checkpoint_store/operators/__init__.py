"""Stores of operators: epochs, barriers, completed checkpoints, and their readers."""
