"""How Arrow writes and reads what a store keeps: compressed, by several threads if they pay.

Arrow's threads work on the columns of a batch side by side. Where there is little to do, waking
them takes longer than the work.
"""

from __future__ import annotations

import pyarrow as pa

_WORTH_THREADS_BYTES = 1 << 20


def write_options(uncompressed_bytes: int) -> pa.ipc.IpcWriteOptions:
    """For so many bytes of columns."""
    use_threads = uncompressed_bytes >= _WORTH_THREADS_BYTES
    return pa.ipc.IpcWriteOptions(compression="zstd", use_threads=use_threads)


def read_options(stored_bytes: int) -> pa.ipc.IpcReadOptions:
    """For a file or stream of so many bytes, compressed as they are."""
    return pa.ipc.IpcReadOptions(use_threads=stored_bytes >= _WORTH_THREADS_BYTES)
