"""How far writers are in event time, while they write on and when their number changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.event_time import WriterWatermarks

NOTHING = WriterWatermarks()


def test_the_least_of_the_writers_counts() -> None:
    found = NOTHING.advanced(3, {0: 50, 1: 20, 2: 70})
    assert found.least_ms == 20
    assert found.advanced(3, {1: 90}).least_ms == 50


def test_a_writer_never_goes_back() -> None:
    found = NOTHING.advanced(2, {0: 50, 1: 60}).advanced(2, {0: 10, 1: 70})
    assert found == WriterWatermarks(2, {0: 50, 1: 70})


def test_a_writer_without_rows_holds_nobody_back() -> None:
    assert NOTHING.advanced(200, {7: 30}).least_ms == 30
    assert NOTHING.advanced(3, {}).least_ms is None


def test_other_writers_begin_where_all_before_them_were() -> None:
    before = NOTHING.advanced(2, {0: 50, 1: 60})
    assert before.advanced(3, {0: 10, 2: 90}) == WriterWatermarks(3, {0: 50, 2: 90})
    assert before.advanced(1, {}) == WriterWatermarks(1, {0: 50})


reports = st.tuples(
    st.integers(1, 4), st.dictionaries(st.integers(0, 3), st.integers(-100, 100), max_size=4)
).map(lambda pair: (pair[0], {k: ms for k, ms in pair[1].items() if k < pair[0]}))


@given(st.lists(reports, max_size=12))
def test_the_watermark_of_all_is_never_less_than_before(
    written: list[tuple[int, dict[int, int]]],
) -> None:
    """Unless a writer that had no row yet writes its first."""
    watermarks = NOTHING
    for parallelism, reported in written:
        before = watermarks
        watermarks = before.advanced(parallelism, reported)
        if parallelism != before.parallelism or reported.keys() <= before.by_subtask.keys():
            assert before.least_ms is None or (
                watermarks.least_ms is not None and watermarks.least_ms >= before.least_ms
            )
