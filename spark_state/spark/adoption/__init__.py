"""A stopped query goes on with its state on another provider, or back."""
