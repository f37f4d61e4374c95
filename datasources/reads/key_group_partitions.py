"""Cuts a read into partitions, each a range of key groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle, bytes_of
from checkpoint_store.states.state_history import StateHistory
from spark_state.errors import ConfigurationError

_PARTITION_BYTES = 16 << 20
_MOST_PARTITIONS = 256


def ranges_to_read(
    files: Iterable[StateHandle], max_parallelism: int, count: int | None
) -> list[KeyGroupRange]:
    """Ranges that together cover all key groups. `count`: about how many ranges. If `count` is
    None, the size of the files gives the number, and the key groups of a RocksDB database are never
    split: a task downloads a whole database even to read a part of its rows."""
    read = list(files)
    if count:
        return key_group_ranges(max_parallelism, count)
    bounds = set(_bounds(max_parallelism, partition_count(bytes_of(read))))
    databases = {file.key_groups for file in read if file.kind == "database"}
    bounds.update(bound for held in databases for bound in (held.start, held.end + 1))
    cuts = sorted(
        bound for bound in bounds if not any(held.start < bound <= held.end for held in databases)
    )
    return _between(cuts)


def check_not_rescaled(history: StateHistory, version: int, partitions: int | None) -> None:
    """Raise ConfigurationError if the query was rescaled since the ranges were chosen: then rows
    have moved to other key groups, and the read may miss rows. `partitions`: the number of
    partitions when the ranges were chosen; None if the number never changes."""
    if partitions is not None and (now := history.at(version).partitions) != partitions:
        raise ConfigurationError(
            f"{history.url} got {now} partitions instead of {partitions} while version {version} "
            "was read. Read it again with a new DataFrame, or start the stream again"
        )


def partition_count(size_bytes: int) -> int:
    """The number of partitions for files of `size_bytes` bytes."""
    return min(_MOST_PARTITIONS, 1 + size_bytes // _PARTITION_BYTES)


def key_group_ranges(max_parallelism: int, count: int) -> list[KeyGroupRange]:
    """About `count` ranges that together cover all key groups; no range is empty."""
    return _between(_bounds(max_parallelism, count))


def _bounds(max_parallelism: int, count: int) -> list[int]:
    count = max(1, min(count, max_parallelism))
    return [index * max_parallelism // count for index in range(count + 1)]


def _between(bounds: Iterable[int]) -> list[KeyGroupRange]:
    return [KeyGroupRange(start, end - 1) for start, end in itertools.pairwise(bounds)]
