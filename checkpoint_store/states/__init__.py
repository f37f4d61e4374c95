"""Versions of a state and how rows of files become it, whoever wrote them."""
