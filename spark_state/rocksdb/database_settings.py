"""Settings of a database that a user may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Compression = Literal["none", "snappy", "lz4", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
ALL_FILES = -1


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The options of one database.

    - `compression`: compression of tables, on the local disk and in the store.
    - `write_buffer_mb`: memory for new rows of a column family, in MiB. When it is full, the rows
      become a table.
    - `table_file_mb`: size of the tables that compaction makes, in MiB.
    - `block_size_kb`: size of a block, the unit of reading and compression, in KiB.
    - `bloom_bits_per_key`: size of the Bloom filter, which saves reads of tables without the wanted
      key; 0 for no filter.
    - `max_open_files`: number of tables open at once, ALL_FILES for no limit.
    - `background_jobs`: number of threads of a host for flushes and compactions.
    """

    compression: Compression = "zstd"
    write_buffer_mb: int = 64
    table_file_mb: int = 64
    block_size_kb: int = 4
    bloom_bits_per_key: int = 10
    max_open_files: int = ALL_FILES
    background_jobs: int = 2
