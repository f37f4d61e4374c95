"""ArrowStatefulProcessor: a processor that gets whole Arrow batches of many keys.

    class CountRows(ArrowStatefulProcessor):
        def init(self, handle):
            self._count = handle.getValueState("count", "n long")

        def handleInputBatch(self, batch, timerValues):
            before = self._count.get_many(batch.keys).field("n").fill_null(0)
            count = pc.add(before, batch.counts)
            self._count.put_many(batch.keys, count)
            yield batch.keys.table.append_column("n", count)

A processor of rows runs some Python code for each row and each key. An ArrowStatefulProcessor runs
some Python code for each batch, and a call of a state is one loop over the keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from spark_state.processor.arrow.arrow_handle import ArrowProcessorHandle
from spark_state.processor.arrow.keyed_batch import ExpiredTimers, KeyedBatch

Output = Iterator[pa.Table | pa.RecordBatch]
"""Tables or batches with the columns of the output schema, matched by name."""


class ArrowStatefulProcessor(ABC):
    """Processor for `transform_with_state_in_arrow`. The processor is pickled; create objects that
    cannot be pickled in `init`.

    With an initial state, the processor needs one more method. Each call gets all initial rows of
    some keys. The calls come before the first call of `handleInputBatch`:

        def handleInitialBatch(self, batch: KeyedBatch, timerValues: TimerValues) -> None

    With broadcast streams, the processor needs a method for the rows of the streams. Each call gets
    the rows of one stream in the epoch, as one table. The calls come before the calls for keyed
    rows:

        def handleBroadcastRows(self, name: str, rows: Iterator[pa.Table], state) -> None
    """

    @abstractmethod
    def init(self, handle: ArrowProcessorHandle) -> None:
        """Declare the states. Called first in every epoch, and once when the query is planned."""

    @abstractmethod
    def handleInputBatch(self, batch: KeyedBatch, timerValues: TimerValues) -> Output:
        """Handle all rows of some keys in an epoch. Each key is in one batch of an epoch.

        A batch has as many keys as fit into `spark.sql.execution.arrow.maxRecordsPerBatch` rows. A
        key with more rows is a batch of its own.
        """

    def handleExpiredTimers(self, timers: ExpiredTimers, timerValues: TimerValues) -> Output:
        """Handle due timers, after all rows. The timers are deleted after the call."""
        return iter(())

    def close(self) -> None:  # noqa: B027 - few processors have anything to close
        """Release resources. Called after each epoch that did not fail."""
