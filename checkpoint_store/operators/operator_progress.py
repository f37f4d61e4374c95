"""What an epoch of an operator did, and what state it left, as its barriers say it. Pure.

Numbers of an operator are sums over its subtasks, with these exceptions: the earliest timer, the
greatest watermark, and the most snapshots that failed in a row. A number that a subtask does not
say is None for the operator, too, so a sum is never of some subtasks only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from checkpoint_store.operators.completed_checkpoint import Barrier, CompletedCheckpoint
from checkpoint_store.operators.epoch_report import EpochReport

_NO_REPORT = EpochReport(0, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNumbers:
    """What an epoch did. An entry is a value of a key, an element of a list, an entry of a map, or
    a timer.

    - `rows_total`: entries of the state after the epoch. `rows_updated`, `rows_removed`: entries
      that the epoch put and deleted.
    - `rows_in`, `rows_out`: rows that processors got and gave. `late_rows`: rows that were dropped
      because the watermark had passed them; None if the operator drops none.
    - `memory_bytes`: about how much memory the entries take, an estimate.
    - `timers`: how many are registered after the epoch. `next_timer_ms`: the earliest, in
      milliseconds since 1970; None if there is none.
    - `watermark_ms`: the watermark that the epoch used, in milliseconds since 1970; None if the
      query sets none, and 0 before its first row.
    - `restore_ms`, `process_ms`, `write_ms`: to find the state that the epoch starts from and bring
      it into memory; in processors; to write files. `last_publish_ms`: to publish the barrier of
      the epoch before, None if another host ran that one.
    - `written_bytes`: bytes of the files that this epoch's barriers name as the first ones.
    - `states_deleted`: states that were deleted with deleteIfExists. Each subtask counts a state.
    - `failed_snapshots`: how many snapshots in a row could not be written, or took too long to be
      named, until this epoch. They are tried again, and the hosts' logs say why they failed.

    `late_rows`, `timers`, `memory_bytes`, `last_publish_ms`, `states_deleted` and
    `failed_snapshots` are None if a subtask does not say them; barriers of earlier releases and of
    `cowstate adopt` do not.
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
    states_deleted: int | None
    failed_snapshots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskProgress(EpochNumbers):
    """One subtask in one epoch. The numbers are those of EpochNumbers."""

    subtask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProgress(EpochNumbers):
    """An operator in one epoch. The numbers are those of EpochNumbers, of all subtasks together.

    `url`: its store's. `epoch`: Spark's batch id. `committed_ms`: when the epoch was complete, in
    milliseconds since 1970. `run_id`: the run of the query that wrote it. `parallelism`: how many
    subtasks ran it; `subtasks`: these, if they were asked for.
    """

    name: str
    url: str
    epoch: int
    committed_ms: int
    run_id: str
    parallelism: int
    subtasks: tuple[SubtaskProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorName:
    """An operator and the URL of its store."""

    name: str
    url: str


def operator_progress(
    operator: OperatorName, checkpoint: CompletedCheckpoint, committed_ms: int, *, subtasks: bool
) -> OperatorProgress:
    """The progress of an epoch; `subtasks`: with that of each subtask."""
    barriers = checkpoint.barriers
    return OperatorProgress(
        name=operator.name,
        url=operator.url,
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
    """The values of EpochNumbers. A barrier without a report, of an early build, counts as one of
    an epoch that did nothing."""
    reports = [barrier.report or _NO_REPORT for barrier in barriers]
    times = [barrier.time for barrier in barriers if barrier.time is not None]
    sums = {
        field.name: _sum(getattr(report, field.name) for report in reports)
        for field in fields(EpochReport)
    }
    # These follow one another at a subtask, so the sum would say that more failed in a row.
    if sums["failed_snapshots"] is not None:
        sums["failed_snapshots"] = max(report.failed_snapshots or 0 for report in reports)
    return {
        "rows_total": sums.pop("entries"),
        "rows_updated": sums.pop("changed"),
        "rows_removed": sums.pop("removed"),
        "next_timer_ms": min(
            (time.next_timer_ms for time in times if time.next_timer_ms is not None), default=None
        ),
        "watermark_ms": max((time.watermark_ms for time in times if time.reached_ms), default=None),
        **{name: value for name, value in sums.items() if name != "publish_ms"},
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """None if one of the values is."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
