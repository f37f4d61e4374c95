"""Keyed state in RocksDB on the local disk, for state larger than the memory."""
