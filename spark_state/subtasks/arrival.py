"""The input of an epoch at a subtask: the rows that are not late, and the epoch's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.checkpointing.watermarks import Watermarks, joined, watermarks_after
from spark_state.processor.input.epoch_inputs import KEYED_ROWS, RowsByKey
from spark_state.processor.input.epoch_time import EpochTime
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.processor_run import RunPlan


@dataclass(frozen=True, slots=True)
class Arrival:
    """The input of an epoch at a subtask, ready for the processor.

    - `inputs`: inputs by name, see EpochInputs.
    - `time`: the epoch's time; None in time mode "None", and if no row tells the batch's time.
    - `batch_ms`: the newest known time of a batch, this batch or an earlier batch.
    - `watermarks`: the watermarks of the epoch, with `reached_ms` after the epoch's rows; None in
      time mode "None".
    - `drops_late`: True if late rows are dropped.
    """

    inputs: Mapping[str, RowsByKey]
    time: EpochTime | None
    batch_ms: int | None
    watermarks: Watermarks | None
    drops_late: bool

    @classmethod
    def of(
        cls, rows: pa.Table | SpilledRows, plan: RunPlan, base: Sequence[SubtaskTime]
    ) -> Arrival:
        """Return the input of an epoch. `rows`: all rows that Spark sent. `base`: the times in the
        barriers of the epoch's base.

        A late row still moves the watermark, as in Spark.
        """
        arrived = WholeRows(plan, rows) if isinstance(rows, pa.Table) else rows
        events = plan.event_times
        if events is None:
            return cls(arrived.by_name(None), None, None, None, False)
        before = watermarks_after(base, events.upstreams, events.policy)
        batch_ms = arrived.batch_ms
        time = None
        if batch_ms is not None:
            time = EpochTime(batch_ms, before.watermark_ms, before.late_watermark_ms)
        return cls(
            inputs=arrived.by_name(before.late_watermark_ms),
            time=time,
            batch_ms=_newest([batch_ms, *(times.batch_ms for times in base)]),
            watermarks=replace(
                before, reached_ms=joined(events.upstreams, before.reached_ms, arrived.reached_ms)
            ),
            drops_late=events.drops_late,
        )

    @property
    def rows_in(self) -> int:
        """The number of rows for the processor. Valid after the processor has run."""
        return self.inputs[KEYED_ROWS].num_rows

    @property
    def late_rows(self) -> int | None:
        """The number of dropped late rows; None if the operator does not drop late rows. Valid
        after the processor has run."""
        return self.inputs[KEYED_ROWS].late_rows if self.drops_late else None

    def subtask_time(self, next_timer_ms: int | None) -> SubtaskTime | None:
        """Return the time for the barrier. `next_timer_ms`: the earliest timer after the epoch."""
        if self.watermarks is None:
            return None
        return SubtaskTime(
            batch_ms=self.batch_ms,
            watermark_ms=self.watermarks.watermark_ms,
            reached_ms=self.watermarks.reached_ms,
            next_timer_ms=next_timer_ms,
        )


class WholeRows:
    """Input rows in memory, with the methods of SpilledRows."""

    def __init__(self, plan: RunPlan, table: pa.Table) -> None:
        self._plan = plan
        self._table = table

    @property
    def batch_ms(self) -> int | None:
        """The batch's time."""
        return self._plan.inputs.batch_ms(self._table)

    @property
    def reached_ms(self) -> tuple[int | None, ...]:
        """For each watermark, the time in ms to which the rows move the watermark."""
        events = self._plan.event_times
        return () if events is None else events.reached_ms(self._table)

    def by_name(self, late_watermark_ms: int | None) -> Mapping[str, RowsByKey]:
        """Return the inputs by name. The keyed rows contain no late rows."""
        events, inputs = self._plan.event_times, self._plan.inputs
        if events is None:
            return inputs.by_name(self._table)
        in_time = events.without_late(self._table, late_watermark_ms)
        by_name = inputs.by_name(in_time)
        late_rows = self._table.num_rows - in_time.num_rows
        keyed = replace(by_name[KEYED_ROWS], late_rows=late_rows)
        return {**by_name, KEYED_ROWS: keyed}


def _newest(times_ms: Sequence[int | None]) -> int | None:
    return max((time_ms for time_ms in times_ms if time_ms is not None), default=None)
