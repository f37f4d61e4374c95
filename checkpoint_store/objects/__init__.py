"""Objects in a store: whole or not at all, tried again, created once; they know no format."""
