"""Where Spark looks for data sources by itself: modules whose name begins with `pyspark_`."""

from datasources.cowstate_source import CowStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
