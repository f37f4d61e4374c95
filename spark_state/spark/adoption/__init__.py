"""Lets a stopped query go on with its state on another provider, or go back."""
