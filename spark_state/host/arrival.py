"""What arrived at a subtask for an epoch: its inputs without late rows, and the epoch's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.operators.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Watermarks, joined, watermarks_after
from spark_state.processor.epoch_inputs import KEYED_ROWS, EpochInput
from spark_state.processor.epoch_time import EpochTime
from spark_state.processor.processor_run import RunPlan


@dataclass(frozen=True, slots=True)
class Arrival:
    """`time`: None if no row tells the batch's time; `batch_ms`: the newest time of a batch that is
    known, this one's or an earlier one's; `watermarks`: None if the operator knows no time;
    `late_rows`: how many rows were dropped, None if none ever is."""

    inputs: Mapping[str, EpochInput]
    time: EpochTime | None
    batch_ms: int | None
    watermarks: Watermarks | None
    late_rows: int | None

    @classmethod
    def of(cls, table: pa.Table, plan: RunPlan, base: Sequence[SubtaskTime]) -> Arrival:
        """`table`: what Spark sent; `base`: the times of all barriers that the epoch starts from.

        A late row still counts for how far its watermark has come, as in Spark.
        """
        events = plan.event_times
        if events is None:
            return cls(plan.inputs.by_name(table), None, None, None, None)
        before = watermarks_after(base, events.upstreams, events.policy)
        in_time = events.without_late(table, before.late_watermark_ms)
        batch_ms = plan.inputs.batch_ms(table)
        time = None
        if batch_ms is not None:
            time = EpochTime(batch_ms, before.watermark_ms, before.late_watermark_ms)
        return cls(
            inputs=plan.inputs.by_name(in_time),
            time=time,
            batch_ms=_newest([batch_ms, *(times.batch_ms for times in base)]),
            watermarks=Watermarks(
                before.watermark_ms,
                before.late_watermark_ms,
                joined(events.upstreams, before.reached_ms, events.reached_ms(table)),
            ),
            late_rows=table.num_rows - in_time.num_rows if events.drops_late else None,
        )

    @property
    def rows_in(self) -> int:
        """How many rows the processor gets."""
        return self.inputs[KEYED_ROWS].table.num_rows

    def subtask_time(self, next_timer_ms: int | None) -> SubtaskTime | None:
        """What the barrier says of time; `next_timer_ms`: the earliest timer after the epoch."""
        if self.watermarks is None:
            return None
        return SubtaskTime(
            batch_ms=self.batch_ms,
            watermark_ms=self.watermarks.watermark_ms,
            reached_ms=self.watermarks.reached_ms,
            next_timer_ms=next_timer_ms,
        )


def _newest(times_ms: Sequence[int | None]) -> int | None:
    return max((time_ms for time_ms in times_ms if time_ms is not None), default=None)
