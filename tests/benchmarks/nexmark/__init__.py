"""Nexmark: an auction site's events, and the queries on the events that keep state."""
