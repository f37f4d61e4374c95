"""The session's configuration with the state store provider, and reading a query's checkpoint."""
