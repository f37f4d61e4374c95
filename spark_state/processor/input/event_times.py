"""Event times of an operator's rows: the progress of event time, and the late rows.

The event time of a row is a timestamp or the end of a window. A row without event time is never
late. Control rows have no event time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_state.checkpointing.watermarks import Policy
from spark_state.processor.condition_errors import emitted_too_late
from spark_state.processor.input.epoch_time import NO_WATERMARK

_MICROS = 1_000


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Columns with event times in a subtask's table, and the use of the event times. Can be
    pickled.

    - `index`: column that decides if a row is late; None if there is no such column.
    - `delays_ms`: delay of each watermark upstream of the operator.
    - `policy`: the watermark that the operator uses, the least ("min") or the greatest ("max").
    - `drops_late`: True if late rows are dropped.
    - `carried_index`: column with the event times, in ms, that move the watermarks. The next column
      has the number of the watermark that the row moves. If `carried_index` is None, the times in
      column `index` move the only watermark.
    """

    index: int | None
    delays_ms: tuple[int, ...]
    policy: Policy
    drops_late: bool
    carried_index: int | None = None

    @property
    def upstreams(self) -> int:
        """The number of watermarks upstream of the operator."""
        return len(self.delays_ms)

    def reached_ms(self, table: pa.Table) -> tuple[int | None, ...]:
        """Return for each watermark the time in ms to which the rows of `table` move the watermark;
        None if no row has an event time for the watermark."""
        latest_ms = self._latest_ms(table) if table.num_rows else {}
        return tuple(
            None if latest_ms.get(number) is None else latest_ms[number] - delay_ms
            for number, delay_ms in enumerate(self.delays_ms)
        )

    def _latest_ms(self, table: pa.Table) -> dict[int, Any]:
        """Return the greatest event time of each watermark with event times."""
        if self.carried_index is not None:
            times = table.select([self.carried_index, self.carried_index + 1])
            latest = times.rename_columns(["ms", "of"]).group_by("of").aggregate([("ms", "max")])
            pairs = latest.select(["of", "ms_max"]).to_pydict()
            return dict(zip(pairs["of"], pairs["ms_max"], strict=True))
        if self.index is None:
            return {}
        micros = pc.max(_micros(table.column(self.index))).as_py()
        return {0: None if micros is None else micros // _MICROS}

    def without_late(self, table: pa.Table, late_watermark_ms: int | None) -> pa.Table:
        """Return the rows of `table` whose event time is after the late watermark, and the rows
        without event time. Returns all rows if there is no late watermark, or if the operator does
        not drop late rows."""
        if self.index is None or late_watermark_ms is None:
            return table
        if not (self.drops_late and table.num_rows):
            return table
        late_watermark = pa.scalar(late_watermark_ms * _MICROS)
        in_time = pc.greater(_micros(table.column(self.index)), late_watermark)
        in_time = pc.fill_null(in_time, pa.scalar(True))
        return table if pc.all(in_time).as_py() else table.filter(in_time)


def check_emitted(batch: pa.RecordBatch, column: str, late_watermark_ms: int) -> None:
    """Raise an error with Spark's condition if an output row is already late: operators downstream
    would drop the row. A null event time counts as 0, as in Spark."""
    if late_watermark_ms == NO_WATERMARK or not batch.num_rows:
        return
    earliest = pc.min(pc.fill_null(_micros(batch.column(column)), pa.scalar(0))).as_py()
    if earliest <= late_watermark_ms * _MICROS:
        raise emitted_too_late(earliest // _MICROS, late_watermark_ms)


def _micros(times: Any) -> Any:
    """Convert event times to microseconds since 1970."""
    if pa.types.is_struct(times.type):
        times = pc.struct_field(times, "end")
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
