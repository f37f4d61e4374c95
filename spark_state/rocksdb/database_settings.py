"""What a user may set of a database, with RocksDB's defaults where they are good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Compression = Literal["none", "snappy", "lz4", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
ALL_FILES = -1


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The options of one database.

    `compression`: of tables, on the local disk and in the store; `write_buffer_mb`: rows of a
    column family that are in memory before they become a table, in MiB; `table_file_mb`: how large
    compaction makes tables, in MiB; `block_size_kb`: rows that are read and compressed together, in
    KiB; `bloom_bits_per_key`: of the filter that says which keys a table lacks, 0 for no filter;
    `max_open_files`: tables that are open at once, ALL_FILES for no limit; `background_jobs`:
    threads of a host that flush and compact.
    """

    compression: Compression = "zstd"
    write_buffer_mb: int = 64
    table_file_mb: int = 64
    block_size_kb: int = 4
    bloom_bits_per_key: int = 10
    max_open_files: int = ALL_FILES
    background_jobs: int = 2
