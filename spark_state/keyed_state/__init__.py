"""What every keyed state backend shares: the protocols of backend and table, and the states."""
