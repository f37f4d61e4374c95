"""The time of a batch: Spark's own, which it logs with the batch's offsets.

The driver reads it from the batch that its query is about to run, and writes it into a local
property of the query's thread, where the batch's tasks find it. A batch that runs again, also after
a restart, has the time that it had.
"""

from __future__ import annotations

from pyspark import SparkContext, TaskContext
from pyspark.sql.streaming.query import StreamingQuery

from spark_state.processor.epoch_time import EpochTime
from spark_state.spark.operator.batch_identity import BatchIdentity

_TIME = "cowstate.time"


def time_of_batch(query: StreamingQuery) -> EpochTime:
    """The time of the batch that the query runs now."""
    planned = query._jsq.streamingQuery().lastExecution().offsetSeqMetadata()
    return EpochTime(int(planned.batchTimestampMs()), int(planned.batchWatermarkMs()))


def name_time(context: SparkContext, batch: BatchIdentity, time: EpochTime) -> None:
    """Tell the tasks that this thread starts from now on what the batch's time is."""
    named = (batch.query_id, batch.run_id, batch.epoch, time.batch_ms, time.watermark_ms)
    context.setLocalProperty(_TIME, "/".join(map(str, named)))


def named_time(context: TaskContext, batch: BatchIdentity) -> EpochTime | None:
    """The time that `name_time` named for this batch; None if it did not. A query that is started
    inside inherits the property, which is of another query's batch then."""
    *named, batch_ms, watermark_ms = (context.getLocalProperty(_TIME) or "//").split("/")
    if named != [batch.query_id, batch.run_id, str(batch.epoch)]:
        return None
    return EpochTime(int(batch_ms), int(watermark_ms))
