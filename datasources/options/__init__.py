"""The options of `format("cowstate")`, parsed and checked."""
