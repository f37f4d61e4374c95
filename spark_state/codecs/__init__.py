"""Codecs: check and convert the values of an Arrow type, for state and for output."""
