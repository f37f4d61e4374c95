"""Scala sources of the state store provider, and their compiler, which fills
`spark_state/jars/`."""
