"""Finds the query, run and batch of a task in the task's local properties.

Spark writes the query and the batch into properties, and the run into the job group. In
foreachBatch user code may replace the job group with a label. A label stays the same over restarts.
If a label were taken for the run, a restarted query would seem to be the same run (I4, I9). So
`foreach_batch` writes the run into another property, together with the query. A query that is
started inside foreachBatch inherits the property, and must not take the run for its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pyspark import SparkContext, TaskContext

from spark_state.errors import BatchIdentityError

EPOCH, QUERY, JOB_GROUP = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
RUN = "cowstate.run"
_DESCRIPTION = "spark.job.description"
_EXECUTION, _ROOT_EXECUTION = "spark.sql.execution.id", "spark.sql.execution.root.id"


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The id of a query, which stays over restarts; the id of one run of the query; and the
    batch."""

    query_id: str
    run_id: str
    epoch: int


def name_run(context: SparkContext, query_id: str, run_id: str) -> None:
    """Tell later tasks of this thread their run and query."""
    context.setLocalProperty(RUN, f"{query_id}/{run_id}")


def named_run(context: TaskContext, query_id: str) -> str | None:
    """The run that `name_run` named for the query; None if `name_run` was not called for the
    query."""
    query, _, run = (context.getLocalProperty(RUN) or "").partition("/")
    return run if query == query_id else None


def batch_identity(context: TaskContext) -> BatchIdentity | None:
    """The query, run and batch of a task; None outside of a streaming query's thread. Raises
    BatchIdentityError if the task knows its query, but not its run."""
    query, epoch = context.getLocalProperty(QUERY), context.getLocalProperty(EPOCH)
    if not query or not epoch:
        return None
    return BatchIdentity(
        query, named_run(context, query) or _run_of_spark(context, query), int(epoch)
    )


def _run_of_spark(context: TaskContext, query_id: str) -> str:
    """The id of the run, from the properties of Spark's job. Raises BatchIdentityError if user code
    may have replaced the properties.

    Spark sets the job group to the id of the run. In foreachBatch user code may set another job
    group, which may look like an id. Such a call also replaces the description of the job. So in
    foreachBatch the job group counts only if the description names the same run. A job is in
    foreachBatch if the job's execution is nested in the execution of the batch.
    """
    job_group = context.getLocalProperty(JOB_GROUP)
    description = context.getLocalProperty(_DESCRIPTION) or ""
    is_nested = context.getLocalProperty(_EXECUTION) != context.getLocalProperty(_ROOT_EXECUTION)
    is_of_spark = not is_nested or f"runId = {job_group}" in description
    if job_group is not None and job_group != query_id and _is_uuid(job_group) and is_of_spark:
        return job_group
    raise BatchIdentityError(
        f"which run of query {query_id} this task belongs to is unknown: {JOB_GROUP} is "
        f"{job_group!r}, which may be a label. In foreachBatch, label jobs with sc.addJobTag(tag) "
        "or spark.addTag(tag), not with setJobGroup or setJobDescription, and do not call "
        "clearJobGroup. Or call spark_state.configure before the query is started: then you may "
        "use job group and description"
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
