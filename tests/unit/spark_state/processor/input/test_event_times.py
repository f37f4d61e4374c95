"""Event times of rows give the watermarks and the late rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_state.processor.input.event_times import EventTimes

INSTANT, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
WINDOW = pa.struct([("start", INSTANT), ("end", INSTANT)])
TIMES = EventTimes(index=1, delays_ms=(10,), policy="min", drops_late=True)
NOT_DROPPING = EventTimes(index=1, delays_ms=(10,), policy="min", drops_late=False)
WITHOUT_TIMES = EventTimes(index=None, delays_ms=(), policy="min", drops_late=True)


CARRIED = EventTimes(index=0, carried_index=1, delays_ms=(10, 0, 5), policy="min", drops_late=True)


def carried_rows(*rows: tuple[int | None, int | None]) -> pa.Table:
    """Make rows with event times in ms and upstream numbers of their watermarks."""
    times, upstreams = zip(*rows, strict=True)
    return pa.table(
        {
            "at": pa.array([0] * len(rows), INSTANT),
            "_cowstate_event_ms": pa.array(times, pa.int64()),
            "_cowstate_upstream": pa.array(upstreams, pa.int32()),
        }
    )


def rows(micros: list[int | None], kind: pa.DataType = INSTANT) -> pa.Table:
    """Make numbered rows with event times in µs; a window ends at its row's time."""
    times: pa.Array[Any] = pa.array(micros, pa.int64())
    if kind is WINDOW:
        ends = times.cast(INSTANT)
        times = pa.StructArray.from_arrays([ends, ends], ["start", "end"], mask=ends.is_null())
    else:
        times = times.cast(kind)
    return pa.table({"row": pa.array(range(len(micros)), pa.int64()), "at": times})


def numbers(table: pa.Table) -> list[int]:
    return table.column("row").to_pylist()


each_kind = pytest.mark.parametrize("kind", [INSTANT, NAIVE, WINDOW], ids=str)


@each_kind
def test_the_greatest_time_less_the_delay_is_reached(kind: pa.DataType) -> None:
    assert TIMES.reached_ms(rows([5_000, 90_999, None], kind)) == (80,)


def test_milliseconds_are_rounded_down_also_before_1970() -> None:
    assert TIMES.reached_ms(rows([-1])) == (-11,)


@pytest.mark.parametrize("table", [pa.table({}), rows([]), rows([None])])
def test_without_an_event_time_nothing_is_reached(table: pa.Table) -> None:
    assert TIMES.reached_ms(table) == (None,)


@each_kind
def test_a_row_at_the_late_watermark_is_late_and_one_without_time_never(kind: pa.DataType) -> None:
    table = rows([40_001, 40_000, None, 39_999, 41_000], kind)
    assert numbers(TIMES.without_late(table, 40)) == [0, 2, 4]


def test_an_operator_that_drops_no_rows_keeps_all() -> None:
    assert numbers(NOT_DROPPING.without_late(rows([1, 2]), 40)) == [0, 1]
    assert NOT_DROPPING.reached_ms(rows([20_000])) == (10,)


def test_rows_without_event_times_bring_no_watermark_on() -> None:
    assert WITHOUT_TIMES.reached_ms(rows([1])) == ()
    assert numbers(WITHOUT_TIMES.without_late(rows([1]), 40)) == [0]
    assert numbers(TIMES.without_late(rows([]), 40)) == []


def test_each_watermark_is_reached_by_its_own_rows() -> None:
    table = carried_rows((70, 1), (90, 0), (80, 1), (None, None), (None, 2))
    assert CARRIED.reached_ms(table) == (80, 80, None)
    assert CARRIED.reached_ms(carried_rows((3, 2))) == (None, None, -2)
    assert CARRIED.reached_ms(pa.table({})) == (None, None, None)


def test_rows_are_late_by_their_own_column_and_not_by_the_carried_one() -> None:
    assert CARRIED.without_late(carried_rows((70, 1)), 0).num_rows == 0
