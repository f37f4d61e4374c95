"""Versions of a state, and the folding of file rows to a state, for all kinds of stores."""
