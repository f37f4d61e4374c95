"""In every epoch, a subtask's processor, late rows and barrier follow the right times.

The script's rows are (key, event time in ms); the watermark is 10 ms behind the rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import EpochInputs
from spark_state.processor.input.epoch_time import both_times
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.output_rows import OutputSpool
from spark_state.subtasks.epoch_request import OperatorSpec
from tests.support.operators.subtasks import Host, OpenHost, Totals, operator, table_of
from tests.support.processors.processors import SeesTime

Timed = list[tuple[str, int | None]]
LAYOUT = InputLayout(("key", "at"), (0,))
EVENTS = EventTimes(index=1, delays_ms=(10,), policy="min", drops_late=True)


def spec_fields(spec: OperatorSpec, events: EventTimes | None = EVENTS) -> dict[str, Any]:
    plan = replace(
        spec.processor.run_plan,
        inputs=EpochInputs(LAYOUT, tells_time=True),
        shown_time=both_times,
        event_times=events,
    )
    return {"processor": replace(spec.processor, run_plan=plan)}


def timed(rows: Timed, batch_ms: int, control: tuple[int, ...] = ()) -> pa.Table:
    keyed = table_of([(key, ms or 0) for key, ms in rows], 8)
    at = pa.array([None if ms is None else ms * 1000 for _, ms in rows], pa.int64())
    table = pa.table(
        {
            "key": keyed.column(0),
            "at": at.cast(pa.timestamp("us", "UTC")),
            "_cowstate_key_group": keyed.column(2),
        }
    )
    controls = {
        "key": [None] * len(control),
        "at": [None] * len(control),
        "_cowstate_key_group": [control_key_group(subtask) for subtask in control],
    }
    table = pa.concat_tables([table, pa.table(controls, schema=table.schema)])
    times = pa.array([batch_ms] * table.num_rows, pa.int64())
    return table.append_column("_cowstate_batch_ms", times)


@pytest.fixture
def opened(open_host: OpenHost, tmp_path: Any) -> Callable[..., Host]:
    """Return a function that opens a host of an operator with time."""

    def open_timed(subtask: int = 0, events: EventTimes | None = EVENTS, **changes: Any) -> Host:
        fields = spec_fields(operator(tmp_path, SeesTime()), events)
        host = open_host(SeesTime(), subtask=subtask, **changes)
        host.spec = replace(host.spec, **fields)
        return host

    return open_timed


def run(host: Host, epoch: int, rows: Timed) -> Totals:
    """Run an epoch at the time 1000 + epoch, with the host's own rows: key -> (time, watermark)."""
    return host.run(epoch, host.own(timed(rows, 1_000 + epoch)))


def barrier_times(host: Host) -> tuple[SubtaskTime, ...]:
    """Return the times in the newest epoch's barriers, without the time of the batch."""
    return tuple(replace(time, batch_ms=None) for time in all_times(host))


def all_times(host: Host) -> list[SubtaskTime]:
    store = CompletedCheckpointStore(open_object_store(host.request(0, 0).store_url))
    checkpoint = store.latest_before(1_000)
    assert checkpoint is not None
    return [barrier.time for barrier in checkpoint.barriers if barrier.time is not None]


def test_the_watermark_follows_the_rows_by_an_epoch_and_late_rows_by_two(
    opened: Callable[..., Host],
) -> None:
    host = opened()
    assert run(host, 0, [("a", 50), ("b", None), ("c", 0)]) == {"a": (1000, 0), "b": (1000, 0)}
    assert host.report is not None
    assert (host.report.rows_in, host.report.late_rows) == (2, 1)
    assert barrier_times(host) == (SubtaskTime(0, (40,), None, None),)
    assert run(host, 1, [("a", 1), ("b", 100)]) == {"a": (1001, 40), "b": (1001, 40)}
    assert run(host, 2, [("a", 40), ("b", 41)]) == {"b": (1002, 90)}
    assert run(host, 3, [("a", 90), ("b", 91)]) == {"b": (1003, 90)}


def test_a_late_row_still_counts_for_its_watermark(opened: Callable[..., Host]) -> None:
    host = opened(events=replace(EVENTS, delays_ms=(-500,)))
    run(host, 0, [("a", 0)])
    assert barrier_times(host) == (SubtaskTime(0, (500,), None, None),)


def test_an_epoch_that_runs_again_has_the_watermark_that_it_had(
    opened: Callable[..., Host],
) -> None:
    host = opened()
    run(host, 0, [("a", 50)])
    run(host, 1, [("a", 100)])
    again = host.run(1, timed([("a", 100)], 1_001), attempt=9)
    assert again == {"a": (1001, 40)}
    assert opened(run_id="run-2").run(1, timed([("a", 100)], 1_001), attempt=10) == again


def test_a_subtask_without_rows_has_the_watermark_of_all_also_at_another_parallelism(
    opened: Callable[..., Host],
) -> None:
    rows = [(key, 50 + number) for number, key in enumerate("abcdefgh")]
    hosts = [opened(subtask, parallelism=2) for subtask in range(2)]
    for host in hosts:
        run(host, 0, rows)
    assert barrier_times(hosts[0]) != barrier_times(hosts[0])[::-1]
    for host in hosts:
        run(host, 1, [])
    assert barrier_times(hosts[0]) == (SubtaskTime(47, (47,), None, None),) * 2
    only = opened(parallelism=1, run_id="run-2")
    assert set(run(only, 2, [("a", 60)]).values()) == {(1002, 47)}


def test_only_a_control_row_brings_the_time_to_a_subtask_without_rows(
    opened: Callable[..., Host],
) -> None:
    host = opened()
    assert run(host, 0, []) == {}
    assert host.run(1, timed([], 1_001, control=(0,))) == {}
    assert host.report is not None
    assert (host.report.rows_in, host.report.late_rows) == (0, 0)
    assert host.run(2, timed([("a", 7)], 1_002, control=(0,))) == {"a": (1002, 0)}
    assert host.report.rows_in == 1


def test_without_event_times_the_watermark_stays_0(opened: Callable[..., Host]) -> None:
    host = opened(events=EventTimes(None, (), "min", drops_late=False))
    assert run(host, 0, [("a", 50)]) == {"a": (1000, 0)}
    assert run(host, 1, [("a", 0)]) == {"a": (1001, 0)}
    assert barrier_times(host) == (SubtaskTime(0, (), None, None),)


def test_an_operator_that_knows_no_time_says_nothing_of_it(open_host: OpenHost) -> None:
    host = open_host()
    host.epoch(0, [("a", 1)])
    assert barrier_times(host) == ()


def test_a_barrier_has_the_newest_batch_time_that_its_subtask_knows(
    opened: Callable[..., Host],
) -> None:
    host = opened()
    run(host, 0, [("a", 50)])
    run(host, 1, [])
    assert [time.batch_ms for time in all_times(host)] == [1000]
    run(host, 2, [("a", 60)])
    assert [time.batch_ms for time in all_times(host)] == [1002]


def test_spilled_rows_have_the_same_watermarks_and_late_rows(opened: Callable[..., Host]) -> None:
    scripts: list[Timed] = [
        [("c", 50), ("b", None), ("a", 0)],
        [("a", 1), ("b", 100), ("a", 101)],
        [("a", 40), ("c", 3), ("b", 41)],
    ]
    plain, other = opened(), opened(operator="other")
    assert other.session is not None
    for epoch, rows in enumerate(scripts):
        table = timed(rows, 1_000 + epoch, control=(0,))
        expected = plain.run(epoch, table)
        spilled = SpilledRows(
            EpochInputs(LAYOUT, tells_time=True), EVENTS, tempfile.gettempdir(), part_bytes=1
        )
        for row in range(table.num_rows):
            spilled.spill(table.slice(row, 1))
        request = other.request(epoch, epoch + 1)
        attempt = other.session.accept(request, lambda: None)
        with closing(spilled), other.session.run(attempt, spilled) as durable:
            pass
        with durable.output as spool:
            output = {row.pop("key"): tuple(row.values()) for row in rows_of(spool)}
        assert output == expected
        assert plain.report is not None
        assert (durable.report.rows_in, durable.report.late_rows) == (
            plain.report.rows_in,
            plain.report.late_rows,
        )
    assert all_times(other) == all_times(plain)


def rows_of(spool: OutputSpool) -> list[dict[str, Any]]:
    """Return the rows that an epoch has emitted."""
    return [row for batch in spool.read() for row in batch.to_pylist()]
