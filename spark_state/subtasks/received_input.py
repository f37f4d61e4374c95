"""The input of an epoch while rows arrive: in memory up to a limit, then on the local disk."""

from __future__ import annotations

import pyarrow as pa

from spark_state.memory_share import MemoryShare
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.processor.processor_run import RunPlan

# Copies of a row in memory: as received, sorted by key, and in part as Python objects.
_COPIES = 3
_LEAST_RUN_BYTES = 1 << 20
# A run has at least about the share divided by this number, even if other subtasks use all other
# memory.
_LEAST_PART_OF_SHARE = 16


class ReceivedInput:
    """Rows of an epoch's input. `share`: this input's share of the memory that all inputs may use
    together; `folder`: directory for spill files. Close after use."""

    def __init__(self, plan: RunPlan, share: MemoryShare, folder: str) -> None:
        self._plan = plan
        self._share = share
        self._folder = folder
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._kept_bytes = 0
        self._spilled: SpilledRows | None = None
        share_bytes = share.most_bytes or 0
        self._run_bytes = max(share_bytes // _COPIES // _LEAST_PART_OF_SHARE, _LEAST_RUN_BYTES)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises StateHostError if the local disk has no room for the rows."""
        self._batches.append(batch)
        if self._share.most_bytes is None:
            return
        size = batch.nbytes
        self._bytes += size
        if not self._share.take(_COPIES * size):
            self._share.take_all_the_same(_COPIES * size)
            if self._bytes >= self._run_bytes:
                self._spill()

    def all(self) -> pa.Table | SpilledRows:
        """Return all received rows, after the last `add`."""
        if self._spilled is None:
            return pa.Table.from_batches(self._batches) if self._batches else pa.table({})
        if self._batches:
            self._spill()
        # A merge also has each row in memory so many times.
        self._share.take_all_the_same(_COPIES * self._run_bytes)
        return self._spilled

    def _spill(self) -> None:
        if self._spilled is None:
            plan = self._plan
            self._spilled = SpilledRows(
                plan.inputs, plan.event_times, self._folder, self._run_bytes
            )
        table = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        self._kept_bytes += self._spilled.spill(table)
        self._share.give_back()
        self._share.take_all_the_same(self._kept_bytes)

    def close(self) -> None:
        """Release the rows' memory and files."""
        self._share.give_back()
        self._batches = []
        if self._spilled is not None:
            self._spilled.close()
