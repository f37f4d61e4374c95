"""The columns that a source offers, and tables that Spark's catalog declares."""
