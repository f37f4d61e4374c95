"""Code of all keyed state backends: base class, protocols of tables, classes such as ListState."""
