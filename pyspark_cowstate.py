"""Lets Spark find `format("cowstate")`: it imports modules whose name begins with `pyspark_`."""

from datasources.cowstate_source import CowStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
