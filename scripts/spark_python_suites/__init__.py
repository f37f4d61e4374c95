"""Runs Spark's Python suites of transformWithState on cowstate."""
