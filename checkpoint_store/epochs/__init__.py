"""An epoch of an operator: its barriers, their documents, and its completed checkpoint."""
