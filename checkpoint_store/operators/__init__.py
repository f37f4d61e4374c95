"""Operators' stores: epochs, barriers and completed checkpoints, and how they are read."""
