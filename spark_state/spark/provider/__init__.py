"""The session's configuration, the provider in it, and reading a query's checkpoint."""
