"""Input of a processor in an epoch: rows of each key, and the epoch's time."""
