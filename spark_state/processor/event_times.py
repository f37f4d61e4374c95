"""The event times of an operator's rows: how far they have come, and which rows are late.

The event time of a row is a timestamp, or the end of a window. A row without event time is never
late, and control rows have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_state.checkpointing.watermarks import Policy

_MICROS = 1_000


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Where the table of a subtask has event times, and what they are for. Pickles.

    `index`: the column of the rows' event times, None if they have none; `delays_ms`: of each
    watermark above the operator; `policy`: which of them counts; `drops_late`: whether late rows
    are dropped.
    """

    index: int | None
    delays_ms: tuple[int, ...]
    policy: Policy
    drops_late: bool

    @property
    def upstreams(self) -> int:
        """The number of watermarks above the operator."""
        return len(self.delays_ms)

    def reached_ms(self, table: pa.Table) -> tuple[int | None, ...]:
        """How far the rows of `table` bring each watermark; None without an event time."""
        if self.index is None or not table.num_rows:
            return (None,) * self.upstreams
        (delay_ms,) = self.delays_ms
        latest = pc.max(_micros(table.column(self.index))).as_py()
        return (None if latest is None else latest // _MICROS - delay_ms,)

    def without_late(self, table: pa.Table, late_watermark_ms: int) -> pa.Table:
        """The rows of `table` that are later than the late watermark, or have no event time."""
        if self.index is None or not (self.drops_late and table.num_rows):
            return table
        late_watermark = pa.scalar(late_watermark_ms * _MICROS)
        in_time = pc.greater(_micros(table.column(self.index)), late_watermark)
        return table.filter(pc.fill_null(in_time, pa.scalar(True)))


def _micros(times: Any) -> Any:
    """Event times as microseconds since 1970."""
    if pa.types.is_struct(times.type):
        times = pc.struct_field(times, "end")
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
