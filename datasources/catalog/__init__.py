"""Columns of a source, and the check of tables that Spark's catalog declares."""
