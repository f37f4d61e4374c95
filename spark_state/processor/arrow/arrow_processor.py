"""ArrowStatefulProcessor: a processor that gets whole Arrow batches of many keys.

    class CountRows(ArrowStatefulProcessor):
        def init(self, handle):
            self._count = handle.getValueState("count", "n long")

        def handleInputBatch(self, batch, timerValues):
            before = self._count.get_many(batch.keys).field("n").fill_null(0)
            count = pc.add(before, batch.counts)
            self._count.put_many(batch.keys, count)
            yield batch.keys.table.append_column("n", count)

A processor of rows takes some steps of Python for each row and each key. This one takes a few for
each batch, and what it does with states is done in one loop over the keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from spark_state.processor.arrow.arrow_handle import ArrowProcessorHandle
from spark_state.processor.arrow.keyed_batch import ExpiredTimers, KeyedBatch

Output = Iterator[pa.Table | pa.RecordBatch]
"""Columns of the output schema, matched by name."""


class ArrowStatefulProcessor(ABC):
    """What `transform_with_state_in_arrow` runs. It is pickled; open what cannot be in `init`.

    With an initial state it has a method, too, that gets all rows of some keys before the first
    rows of a query:

        def handleInitialBatch(self, batch: KeyedBatch, timerValues: TimerValues) -> None

    and with broadcast streams one that gets their rows, one table a call, before the keyed rows:

        def handleBroadcastRows(self, name: str, rows: Iterator[pa.Table], state) -> None
    """

    @abstractmethod
    def init(self, handle: ArrowProcessorHandle) -> None:
        """Declare the states. It is called before anything else, in every epoch and once when the
        query is planned."""

    @abstractmethod
    def handleInputBatch(self, batch: KeyedBatch, timerValues: TimerValues) -> Output:
        """Handle all rows that an epoch has of some keys. Each key is in one batch of an epoch.

        A batch has as many keys as fit `spark.sql.execution.arrow.maxRecordsPerBatch` rows, and one
        key that has more rows than that.
        """

    def handleExpiredTimers(self, timers: ExpiredTimers, timerValues: TimerValues) -> Output:
        """Handle timers that are due, after all rows. They are deleted after the call."""
        return iter(())

    def close(self) -> None:  # noqa: B027 - few processors have anything to close
        """Called after each epoch that did not fail."""
