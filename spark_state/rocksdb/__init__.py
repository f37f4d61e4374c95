"""Keyed state in RocksDB on the local disk, for state that does not fit into memory."""
