"""Keyed state on the Python heap: copy-on-write maps with incremental rehash."""
