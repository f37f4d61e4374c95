"""Cuts a read into partitions, which are ranges of key groups. Pure."""

from __future__ import annotations

import itertools

from checkpoint_store.files.key_group_range import KeyGroupRange

_PARTITION_BYTES = 16 << 20
_MOST_PARTITIONS = 256


def partition_count(size_bytes: int) -> int:
    """The number of partitions for files of this size."""
    return min(_MOST_PARTITIONS, 1 + size_bytes // _PARTITION_BYTES)


def key_group_ranges(max_parallelism: int, count: int) -> list[KeyGroupRange]:
    """About `count` ranges that together cover all key groups; no range is empty."""
    count = max(1, min(count, max_parallelism))
    bounds = [index * max_parallelism // count for index in range(count + 1)]
    return [KeyGroupRange(start, end - 1) for start, end in itertools.pairwise(bounds)]
