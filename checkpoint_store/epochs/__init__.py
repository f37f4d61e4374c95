"""Epochs of an operator: barriers, completed checkpoints, and the documents that hold them."""
