"""The command `cowstate`."""
