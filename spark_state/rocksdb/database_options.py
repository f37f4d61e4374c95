"""The options for opening a database, and the memory that databases share.

Only this module and `database` import rocksdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

from spark_state.rocksdb.database_settings import Compression, DatabaseSettings

_MANIFEST_BYTES = 64 << 10
_LOWEST_TABLES = 8
_COMPRESSION_TYPES: Mapping[Compression, Callable[[], DBCompressionType]] = {
    "none": DBCompressionType.none,
    "snappy": DBCompressionType.snappy,
    "lz4": DBCompressionType.lz4,
    "zstd": DBCompressionType.zstd,
}


class DatabaseMemory:
    """Memory shared by several databases, for cached blocks of files and for rows not yet written
    to files."""

    def __init__(self) -> None:
        self._bytes = 0
        self.blocks = Cache(0)
        # The write buffers count as part of the blocks. When the buffers are full, a database
        # begins to write rows to files. No write waits for that (False): on a full disk the wait
        # would never end and would stop the process.
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            1, False, self.blocks
        )

    def allow(self, most_bytes: int) -> None:
        """Raise the limit of all databases together to `most_bytes`. Does nothing if the limit is
        already as high."""
        if most_bytes > self._bytes:
            self._bytes = most_bytes
            self.blocks.set_capacity(most_bytes)
            self.write_buffers.set_buffer_size(most_bytes // 2)


def database_options(memory: DatabaseMemory | None, settings: DatabaseSettings) -> Options:
    """Return the options of a database, which are also the options of the default column family.
    `memory`: None for RocksDB's default memory."""
    options = family_options(memory, settings)
    options.create_if_missing(True)
    # Each snapshot contains RocksDB's manifest. The manifest grows with every change of the tables
    # until RocksDB begins a new manifest.
    options.set_max_manifest_file_size(_MANIFEST_BYTES)
    options.set_max_open_files(settings.max_open_files)
    options.set_max_background_jobs(settings.background_jobs)
    if memory is not None:
        options.set_write_buffer_manager(memory.write_buffers)
    return options


def family_options(memory: DatabaseMemory | None, settings: DatabaseSettings) -> Options:
    options = Options(raw_mode=True)
    # Tables are uploaded as they are, so the compression also counts in the store.
    options.set_compression_type(_COMPRESSION_TYPES[settings.compression]())
    options.set_write_buffer_size(settings.write_buffer_mb << 20)
    options.set_target_file_size_base(settings.table_file_mb << 20)
    # Each snapshot makes a table of the lowest level, and uploads all tables that compaction made
    # since the last snapshot. Fewer compactions, each of more tables, make fewer new tables.
    options.set_level_zero_file_num_compaction_trigger(_LOWEST_TABLES)
    options.set_level_zero_slowdown_writes_trigger(4 * _LOWEST_TABLES)
    options.set_level_zero_stop_writes_trigger(6 * _LOWEST_TABLES)
    blocks = BlockBasedOptions()
    blocks.set_block_size(settings.block_size_kb << 10)
    if settings.bloom_bits_per_key:
        blocks.set_bloom_filter(settings.bloom_bits_per_key, False)
    if memory is not None:
        blocks.set_block_cache(memory.blocks)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(blocks)
    return options
