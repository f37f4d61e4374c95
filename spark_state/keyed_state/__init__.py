"""Code shared by all keyed state backends: the protocols of backend and table, and the states."""
