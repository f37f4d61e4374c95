"""How a read is cut into partitions: ranges of key groups. Pure."""

from __future__ import annotations

import itertools

from checkpoint_store.files.key_group_range import KeyGroupRange

_PARTITION_BYTES = 16 << 20
_MOST_PARTITIONS = 256


def partition_count(size_bytes: int) -> int:
    """How many partitions files of so many bytes are read in."""
    return min(_MOST_PARTITIONS, 1 + size_bytes // _PARTITION_BYTES)


def key_group_ranges(max_parallelism: int, count: int) -> list[KeyGroupRange]:
    """About `count` ranges of key groups, none empty, that cover all."""
    count = max(1, min(count, max_parallelism))
    bounds = [index * max_parallelism // count for index in range(count + 1)]
    return [KeyGroupRange(start, end - 1) for start, end in itertools.pairwise(bounds)]
