"""Numbers about an epoch of an operator: the epoch's work and the state after the epoch. Pure.

The barriers of the epoch report the numbers. An operator's number is the sum over its subtasks,
with three exceptions: the earliest timer, the greatest watermark, and the greatest count of failed
snapshots in a row. If a subtask does not report a number, the operator's number is None, so a sum
never covers only some subtasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from checkpoint_store.epochs.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.epochs.epoch_report import EpochReport


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNumbers:
    """The numbers of one epoch. An entry is a value of a key, an element of a list, an entry of a
    map, or a timer.

    - `rows_total`: entries of the state after the epoch. `rows_updated`, `rows_removed`: entries
      put and deleted by the epoch.
    - `rows_in`, `rows_out`: rows into and out of processors. `late_rows`: rows dropped because the
      watermark had passed the rows; None if the operator drops no rows.
    - `memory_bytes`: estimated memory of the entries in bytes.
    - `timers`: number of timers registered after the epoch. `next_timer_ms`: the earliest timer, in
      milliseconds since 1970; None if there is no timer.
    - `watermark_ms`: the watermark used by the epoch, in milliseconds since 1970; None if the query
      sets no watermark, and 0 before the query's first row.
    - `restore_ms`: time to find the state that the epoch starts from and to bring the state into
      memory. `process_ms`: time in processors. `write_ms`: time to write files. `last_publish_ms`:
      time to publish the barrier of the epoch before, None if another host ran the epoch before.
    - `written_bytes`: bytes of the files that the barriers of this epoch are the first to name.
    - `states_deleted`: states deleted with deleteIfExists. Each subtask counts a deleted state.
    - `failed_snapshots`: number of snapshots in a row, up to this epoch, that failed: the files
      could not be written, or took so long that no barrier may name the files any more. Hosts try
      again, and log the cause.

    `late_rows`, `timers`, `memory_bytes` and `last_publish_ms` are None if a subtask does not
    report the number. Barriers of `cowstate adopt` do not report these numbers.
    """

    rows_total: int
    rows_updated: int
    rows_removed: int
    rows_in: int
    rows_out: int
    late_rows: int | None
    memory_bytes: int | None
    timers: int | None
    next_timer_ms: int | None
    watermark_ms: int | None
    restore_ms: int
    process_ms: int
    write_ms: int
    last_publish_ms: int | None
    written_bytes: int
    states_deleted: int
    failed_snapshots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskProgress(EpochNumbers):
    """The progress of one subtask in one epoch: the numbers of EpochNumbers for this subtask.
    `subtask`: the number of the subtask, from 0."""

    subtask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProgress(EpochNumbers):
    """The progress of an operator in one epoch, in the numbers of EpochNumbers over all subtasks.

    `url`: the URL of the operator's store. `epoch`: Spark's batch id. `committed_ms`: the time at
    which the epoch was complete, in milliseconds since 1970. `run_id`: the query's run that wrote
    the epoch. `parallelism`: number of subtasks that ran the epoch. `subtasks`: the progress of
    each subtask, empty unless requested.
    """

    name: str
    url: str
    epoch: int
    committed_ms: int
    run_id: str
    parallelism: int
    subtasks: tuple[SubtaskProgress, ...] = ()


def operator_progress(
    name: str, url: str, checkpoint: CompletedCheckpoint, committed_ms: int, *, subtasks: bool
) -> OperatorProgress:
    """Compute the progress of an epoch. `name`: the operator's name; `url`: the URL of the
    operator's store. `subtasks`: True adds the progress of each subtask."""
    barriers = checkpoint.barriers
    return OperatorProgress(
        name=name,
        url=url,
        epoch=checkpoint.epoch,
        committed_ms=committed_ms,
        run_id=checkpoint.run.run_id,
        parallelism=checkpoint.parallelism,
        subtasks=tuple(map(_of_subtask, barriers)) if subtasks else (),
        **_numbers(barriers),
    )


def _of_subtask(barrier: Barrier) -> SubtaskProgress:
    return SubtaskProgress(subtask=barrier.subtask, **_numbers([barrier]))


def _numbers(barriers: Sequence[Barrier]) -> dict[str, Any]:
    reports = [barrier.report for barrier in barriers]
    times = [barrier.time for barrier in barriers if barrier.time is not None]
    sums = {
        field.name: _sum(getattr(report, field.name) for report in reports)
        for field in fields(EpochReport)
    }
    # Each subtask counts its own failures in a row. Their sum would claim a longer row.
    sums["failed_snapshots"] = max(report.failed_snapshots for report in reports)
    return {
        "rows_total": sums.pop("entries"),
        "rows_updated": sums.pop("changed"),
        "rows_removed": sums.pop("removed"),
        "next_timer_ms": min(
            (time.next_timer_ms for time in times if time.next_timer_ms is not None), default=None
        ),
        "watermark_ms": max((time.watermark_ms for time in times if time.reached_ms), default=None),
        **sums,
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum, None if a value is None."""
    numbers = [*values]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
