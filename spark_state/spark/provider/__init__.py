"""The session's configuration, the provider in it, and what a query's checkpoint says."""
