"""The peak memory of a call, of Arrow and of Python with numpy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa

# A buffer that outlives a call goes back to its pool. Only this list keeps the pools alive.
_POOLS: list[pa.MemoryPool] = []


def peak_bytes(call: Callable[[], Any]) -> int:
    """Call, and return the sum of the peaks of Arrow and of Python. Mapped files do not count."""
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    _POOLS.append(counting)
    pa.set_memory_pool(counting)
    tracemalloc.start()
    try:
        call()
        return (counting.max_memory() or 0) + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
