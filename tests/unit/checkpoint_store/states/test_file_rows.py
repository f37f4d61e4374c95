"""A file is read once, for the needed key groups only."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.states.file_rows import read_files
from tests.support.operators.counts_operator import METADATA, SCHEMA, CountsOperator
from tests.support.stores.fake_object_store import DictObjectStore


@pytest.mark.parametrize(
    ("asked", "expected"),
    [((0, 7), [0, 1, 3, 6, 7]), ((1, 6), [1, 3, 6]), ((4, 5), []), ((2, 4), [3])],
)
def test_a_file_of_several_ranges_is_read_once(asked: tuple[int, int], expected: list[int]) -> None:
    objects = DictObjectStore()
    completed = CountsOperator(objects, parallelism=1).run_epoch(0, {g: g for g in range(8)})
    (whole,) = completed.barriers[0].handles
    pieces = [
        replace(whole, key_groups=KeyGroupRange(start, end))
        for start, end in ((0, 1), (3, 3), (6, 7))
    ]
    objects.reads.clear()
    tables = read_files(
        OperatorHistory(objects, METADATA, None),
        pieces,
        KeyGroupRange(*asked),
        lambda batches: pa.Table.from_batches(batches, SCHEMA),
    )
    assert [value for table in tables for value in table["value"].to_pylist()] == expected
    assert objects.reads == ([whole.name] if expected else [])
