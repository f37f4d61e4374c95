"""The answers of an engine count only if they are those of a batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.benchmarks.nexmark.answers import WrongAnswersError, compare

BATCH = pa.table({"bidder": [1, 2, 2], "bids": [5, 6, 6]})


def answers(*rows: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("bidder", "bids", "batch"), r, strict=True)) for r in rows]
    )


def test_rows_in_another_order_are_those_of_the_batch() -> None:
    assert compare(BATCH, answers((2, 6, 0), (1, 5, 0), (2, 6, 1)), (), has_open=False) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [(1, 5, 0), (2, 6, 0), (2, 7, 1)],
            r"1 of 3 rows are wrong, such as \(2, 7\); 1 are missing",
        ),
        ([(1, 5, 0), (2, 6, 0)], r"0 of 2 rows are wrong.*1 are missing, such as \(2, 6\)"),
        ([(1, 5, 0), (2, 6, 0), (2, 6, 0), (2, 6, 0)], "1 of 4 rows are wrong.*0 are missing"),
        ([], "there are no rows"),
    ],
)
def test_rows_that_differ_or_are_too_few_or_too_many_are_an_error(
    rows: list[tuple[int, int, int]], message: str
) -> None:
    table = answers(*rows) if rows else BATCH.slice(0, 0)
    with pytest.raises(WrongAnswersError, match=message):
        compare(BATCH, table, (), has_open=False)


def test_of_a_key_the_row_of_the_last_batch_counts() -> None:
    rows = answers((1, 5, 2), (1, 4, 1), (2, 1, 0), (2, 6, 1))
    assert compare(BATCH.slice(0, 2), rows, ("bidder",), has_open=False) == 2


def windows(*ends: Any) -> pa.Table:
    return pa.table({"bids": [1] * len(ends), "end": pa.array(ends), "batch": [0] * len(ends)})


def test_windows_newer_than_all_answers_may_be_open_and_no_others() -> None:
    expected = windows(10, 20, 30)
    assert compare(expected, windows(20, 10), (), has_open=True) == 2
    with pytest.raises(WrongAnswersError, match=r"0 of 1 rows are wrong.*1 are missing"):
        compare(expected, windows(20), (), has_open=True)
    with pytest.raises(WrongAnswersError, match="1 are missing"):
        compare(expected, windows(20, 10), (), has_open=False)


def test_a_timestamp_is_the_same_as_its_milliseconds() -> None:
    time = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=7)
    naive = pa.array([time.replace(tzinfo=None)], pa.timestamp("ns"))
    for column in (pa.array([time]), naive):
        expected = pa.table({"start": column})
        answered = pa.table({"start": [1_700_000_000_007], "batch": [0]})
        assert compare(expected, answered, (), has_open=False) == 1
