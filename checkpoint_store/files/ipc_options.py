"""Arrow's options for writing and reading a store's files: compression, and threads where they pay.

Arrow's threads work on the columns of a batch side by side. For few bytes, waking the threads takes
longer than the work.
"""

from __future__ import annotations

import pyarrow as pa

_WORTH_THREADS_BYTES = 1 << 20


def write_options(uncompressed_bytes: int) -> pa.ipc.IpcWriteOptions:
    """Return the options to write columns of `uncompressed_bytes` bytes."""
    use_threads = uncompressed_bytes >= _WORTH_THREADS_BYTES
    return pa.ipc.IpcWriteOptions(compression="zstd", use_threads=use_threads)


def read_options(stored_bytes: int) -> pa.ipc.IpcReadOptions:
    """Return the options to read a file or stream of `stored_bytes` compressed bytes."""
    return pa.ipc.IpcReadOptions(use_threads=stored_bytes >= _WORTH_THREADS_BYTES)
