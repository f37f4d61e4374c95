"""Keyed state in RocksDB, on the local disk: for state that is larger than the memory."""
