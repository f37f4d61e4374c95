"""Scala sources of the state store provider, and how they become `spark_state/jars/`."""
