"""Writing rows into a table."""
