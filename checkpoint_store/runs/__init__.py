"""The runs of a query: which runs wrote into an operator's store, and which epochs count."""
