"""Lets a stopped query continue with its state on another provider, and go back to the former
provider."""
