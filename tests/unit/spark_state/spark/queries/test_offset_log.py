"""The entries of an offset log give the newest epoch of an operator."""

from __future__ import annotations

import pytest

from spark_state.spark.queries.offset_log import newest_epoch
from spark_state.subtasks.epoch_request import NEVER_RUN


def log(*entries: tuple[str, ...]) -> dict[int, str]:
    """Make entries of batches from 0 on, each with the offsets of its sources."""
    return {batch: "\n".join(("v1", "{}", *offsets)) for batch, offsets in enumerate(entries)}


def newest(entries: dict[int, str], *places: int, sources: int = 1) -> int | None:
    return newest_epoch(entries.get, max(entries, default=-1), places, sources)


def test_the_last_batch_in_which_a_source_of_the_operator_moved_counts() -> None:
    entries = log(("5", "-"), ("6", "-"), ("6", "1"), ("6", "2"))
    assert newest(entries, 0, sources=2) == 1
    assert newest(entries, 1, sources=2) == 3
    assert newest(entries, 0, 1, sources=2) == 3


def test_the_first_offset_of_a_source_is_a_move() -> None:
    assert newest(log(("-", "3")), 1, sources=2) == 0
    assert newest(log(("-", "3")), 0, sources=2) == NEVER_RUN


def test_offsets_are_compared_as_json() -> None:
    entries = log(('{"a": 1, "b": 2}',), ('{"b":2,"a":1}',))
    assert newest(entries, 0) == 0
    assert newest(log(("x",), ("y",)), 0) == 1


def test_offsets_by_name_tell_whether_any_source_has_moved() -> None:
    entries = {batch: f"v2\n{{}}\nrows\n{offset}" for batch, offset in enumerate((4, 5, 5))}
    assert newest(entries, 0) == 1
    assert newest(entries, 0, sources=2) is None


def test_no_batch_has_no_epoch() -> None:
    assert newest({}, 0) == NEVER_RUN


@pytest.mark.parametrize(
    "damage",
    [
        {1: "v9\n{}\n7"},  # an unknown version
        {1: "v1\n{}\n7\n8"},  # a changed number of sources
        {},  # a deleted entry
    ],
)
def test_nothing_is_known_if_the_log_does_not_tell(damage: dict[int, str]) -> None:
    entries = log(("5",), ("6",), ("6",))
    del entries[1]
    assert newest(entries | damage, 0) is None
