"""A state's watermark follows its writers, even if the number of writers changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.states.event_time import NO_WATERMARKS, WriterWatermarks

NOTHING = NO_WATERMARKS


def test_the_least_of_the_writers_counts() -> None:
    watermarks = NOTHING.advanced(3, {0: 50, 1: 20, 2: 70})
    assert watermarks.least_ms == 20
    assert watermarks.advanced(3, {1: 90}).least_ms == 50


def test_a_writer_never_goes_back() -> None:
    watermarks = NOTHING.advanced(2, {0: 50, 1: 60}).advanced(2, {0: 10, 1: 70})
    assert watermarks == WriterWatermarks(2, {0: 50, 1: 70}, 50)


def test_a_writer_without_rows_holds_nobody_back() -> None:
    assert NOTHING.advanced(200, {7: 30}).least_ms == 30
    assert NOTHING.advanced(3, {}).least_ms is None


def test_other_writers_begin_where_all_before_them_were() -> None:
    before = NOTHING.advanced(2, {0: 50, 1: 60})
    assert before.advanced(3, {0: 10, 2: 90}) == WriterWatermarks(3, {0: 50, 2: 90}, 50)
    silent = before.advanced(4, {})
    assert silent == WriterWatermarks(4, {}, 50)
    assert silent.advanced(4, {1: 500, 2: 400}).least_ms == 400


def test_the_first_row_of_a_writer_may_be_late_but_takes_nothing_back() -> None:
    watermarks = NOTHING.advanced(2, {0: 1000}).advanced(2, {1: 10})
    assert watermarks == WriterWatermarks(2, {0: 1000, 1: 1000}, 1000)


reports = st.tuples(
    st.integers(1, 4), st.dictionaries(st.integers(0, 3), st.integers(-100, 100), max_size=4)
).map(lambda pair: (pair[0], {k: ms for k, ms in pair[1].items() if k < pair[0]}))


@given(st.lists(reports, max_size=12))
def test_the_watermark_of_all_never_goes_back(written: list[tuple[int, dict[int, int]]]) -> None:
    watermarks = NOTHING
    for parallelism, reported in written:
        before = watermarks.least_ms
        watermarks = watermarks.advanced(parallelism, reported)
        if before is not None:
            assert watermarks.least_ms >= before
        assert watermarks.least_ms is None or all(
            watermark >= watermarks.least_ms for watermark in watermarks.by_subtask.values()
        )
