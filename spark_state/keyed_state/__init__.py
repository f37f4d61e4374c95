"""Code shared by all keyed state backends: base of the backends, protocols of tables, states."""
