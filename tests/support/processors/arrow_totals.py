"""RunningTotals as an ArrowStatefulProcessor, with every kind of operator input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_state import ArrowStatefulProcessor


class ArrowTotals(ArrowStatefulProcessor):
    """Processor that counts and sums the rows of a key, and emits (key, rows, total) per key and
    epoch."""

    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("totals", "rows bigint, total bigint")

    def handleInitialBatch(self, batch: Any, timerValues: Any) -> None:
        rows = batch.rows
        self._totals.put_many(batch.keys, rows.select(["rows", "total"]).take(batch.starts))

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        values = batch.rows["value"].to_numpy()
        if values.min() < 0:
            raise ValueError(f"a negative value: {values.min()}")
        sums = np.add.reduceat(values, batch.starts)
        totals = self.added(batch.keys, batch.counts, sums)
        yield batch.keys.table.append_column("rows", totals["rows"]).append_column(
            "total", totals["total"]
        )

    def added(self, keys: Any, counts: Any, sums: Any) -> pa.Table:
        """Add counts and sums to the totals, store the new totals, and return the new totals."""
        before = self._totals.get_many(keys)
        totals = pa.table(
            {
                "rows": pc.add(before.field("rows").fill_null(0), counts),
                "total": pc.add(before.field("total").fill_null(0), sums),
            }
        )
        self._totals.put_many(keys, totals)
        return totals


class ArrowTotalsWhenIdle(ArrowTotals):
    """Processor that emits a key's weighted number of rows and forgets the key, 20 s of event time
    after the key's first row. Values are event times. A broadcast stream gives the weight of each
    row of a key."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._handle = handle
        self._weights = handle.getBroadcastState("weights", "key string", "weight bigint")

    def handleBroadcastRows(self, name: str, rows: Iterator[pa.Table], state: Any) -> None:
        for table in rows:
            for row in table.to_pylist():
                state[name].updateValue((row["key"],), (row["value"],))

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        values = batch.rows["value"].to_numpy()
        new = pc.invert(self._totals.exists_many(batch.keys))
        firsts = np.minimum.reduceat(values, batch.starts)
        self._handle.registerTimers(
            batch.keys.filter(new), pc.add(pa.array(firsts), 20_000).filter(new)
        )
        weights = [self._weights.getValue(key) for key in batch.keys]
        each = np.array([1 if weight is None else weight[0] for weight in weights])
        sums = np.add.reduceat(values, batch.starts)
        self.added(batch.keys, each * batch.counts.to_numpy(), sums)
        return iter(())

    def handleExpiredTimers(self, timers: Any, timerValues: Any) -> Iterator[pa.Table]:
        totals = self._totals.get_many(timers.keys)
        self._totals.clear_many(timers.keys)
        yield timers.keys.table.append_column("rows", totals.field("rows")).append_column(
            "total", timers.times_ms
        )
