"""A limit for the machine's free memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_CHUNK = b"\1" * 2**20


@contextmanager
def free_memory_of(gib: float | None) -> Iterator[None]:
    """Hold memory so that about `gib` GiB are available to other processes. None holds nothing.

    Held pages were written to, so a system without swap cannot take back the pages. Raises
    ValueError if less is available already, or if the system has swap.
    """
    if gib is None:
        yield
        return
    if psutil.swap_memory().total:
        raise ValueError("--free-memory needs a system without swap (`swapoff -a`)")
    available = psutil.virtual_memory().available
    held_bytes = int(available - gib * 2**30)
    if held_bytes <= 0:
        raise ValueError(f"--free-memory {gib}: only {available / 2**30:.1f} GiB are available")
    with mmap.mmap(-1, held_bytes) as held:
        while held.tell() + len(_CHUNK) <= held_bytes:
            held.write(_CHUNK)
        yield
