"""Lets Spark find `format("cowstate")`: Spark imports modules with names that begin with
`pyspark_`."""

from datasources.cowstate_source import CowStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
