"""Object storage: objects are whole or absent, created once, and calls are tried again. Nothing
here knows a file format."""
