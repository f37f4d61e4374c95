"""Which batch of which query a task belongs to: what Spark says in the task's local properties."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

EPOCH, QUERY, RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The query's id, which stays over restarts, that of this start of it, and the batch."""

    query_id: str
    run_id: str
    epoch: int


def batch_identity(context: TaskContext) -> BatchIdentity | None:
    """None outside of a streaming query's thread."""
    query, run, epoch = (context.getLocalProperty(name) for name in (QUERY, RUN, EPOCH))
    return BatchIdentity(query, run, int(epoch)) if query and run and epoch else None
