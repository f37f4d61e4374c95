"""Checks a query's checkpoint and the stores of its operators before the query starts.

Spark's commit log shows which batch is the next, and the offset log shows the epochs that the
operators must have. If a store lacks such an epoch, an older copy of the store was put back. If a
store has epochs of batches that the logs do not have, the query was taken back to an earlier batch.
In this case the driver notes in the store that these epochs no longer count, before the query runs
a batch. The operator's tasks could note this only in the operator's next epoch, which may come many
batches later, or only after another start.

The driver tells the tasks of the run the epoch that each operator must have, in a local property of
the thread that starts the query. The thread of the query inherits the property.

The driver reads a store before the logs. Spark logs a batch before the operator writes the batch's
epoch. So if the store has an epoch, and the offset log lacks the epoch's batch, the query was taken
back. The query was also taken back if the commit log lacks a batch that the store has noted as
committed.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.errors import CowstateError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.attachment import attach, stored_runs
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.attachment_plan import attachments_of
from checkpoint_store.runs.checkpoint_location import digest_of
from checkpoint_store.runs.run_errors import EpochsLostError
from checkpoint_store.runs.run_lineage import RunLineage, lineage_of
from spark_state.errors import ConfigurationError
from spark_state.spark.queries.named_starts import STARTS
from spark_state.spark.queries.offset_log import newest_epoch
from spark_state.spark.session.connect_sessions import called_near_stores
from spark_state.spark.session.hadoop_files import HadoopFiles
from spark_state.spark.session.planned_operators import OperatorInputs
from spark_state.subtasks.epoch_request import OperatorStart

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_AT_EXIT = 30.0
_NOT_NOTED = (
    "a store could not be told that Spark has committed batch %d: %s. If the next start cannot "
    "tell which run counts, name this run with cowstate attach --run"
)

# The URL of a store, the time of retries in seconds, and the options of the store's client.
Store = tuple[str, float, Mapping[str, Any]]
Call = Callable[..., Any]
"""Gets a function and its arguments, calls the function where the stores are within reach, and
returns the result."""


class StoreProgress(NamedTuple):
    """Progress of an operator in its store; -1 if the store has no epoch.

    `written`: the newest epoch in the store; `reached`: `written`, or the epoch after the batch
    that the store has noted as committed, whichever is later; `newest_run`: the number of the
    newest run that counts, 0 if there is none.
    """

    written: int = -1
    reached: int = -1
    newest_run: int = 0


@dataclass(frozen=True, slots=True)
class WayBack:
    """Facts for taking an operator back to the batch after `committed`.

    `checkpoint`: the location of the checkpoint; `committed`: the last batch that Spark has
    committed, -1 if there is none; `is_under_way`: True if the next batch is planned; `seen`: the
    progress in the operator's store before the logs were read; `must_have`: the newest epoch that
    the operator must have because Spark committed the epoch's batch, NEVER_RUN if the operator has
    never run, None if unknown; `applies`: False to only check that the operator can be taken back;
    `run_id`: the id of the run that notes the change in the store.
    """

    checkpoint: str
    committed: int
    is_under_way: bool
    seen: StoreProgress
    must_have: int | None
    applies: bool = True
    run_id: str = field(default_factory=lambda: f"back-{uuid4()}")


class CheckpointLogs(Protocol):
    """The logs and the metadata of a checkpoint, such as HadoopFiles."""

    url: str

    def numbers(self, folder: str, /) -> list[int]:
        """The numbers of the entries of a log."""

    def text(self, name: str, /) -> str | None:
        """The text of a file, None if the file does not exist."""


def name_starts(
    spark: SparkSession, location: str | None, operators: Sequence[OperatorInputs]
) -> Callable[[StreamingQuery | None], None]:
    """Tell the tasks of this thread's next query how the query's operators start.

    `location`: the checkpoint's location, None if Spark chooses the location. Returns a function to
    call with the started query, or with None if the query did not start. Raises
    StoreOfOtherCheckpointError, EpochsLostError, the errors of take_back_in_store, and the errors
    of the stores.
    """
    context = spark.sparkContext
    text, repeated = "", list[OperatorInputs]()
    if location is not None:
        call = partial(called_near_stores, spark)
        text, repeated = told_starts(HadoopFiles(spark, location), call, operators)
    # If this thread runs a function of foreachBatch, the outer query has set the property, too.
    former = context.getLocalProperty(STARTS)
    context.setLocalProperty(STARTS, text)

    def note(query: StreamingQuery | None) -> None:
        context.setLocalProperty(STARTS, former or "")
        if query is not None and repeated:
            _watch_first_commit(spark, repeated, query)

    return note


def told_starts(
    files: CheckpointLogs, call: Call, operators: Sequence[OperatorInputs]
) -> tuple[str, list[OperatorInputs]]:
    """Check the operators of a query, and take the operators back if the query was taken back.
    Return the text that tells the tasks how the operators start, and the operators whose next epoch
    may have been written by an older run. `files`: the files of the checkpoint. Raises the errors
    of name_starts."""
    metadata = files.text("metadata")
    query_id = None if metadata is None else str(json.loads(metadata)["id"])
    reached = [StoreProgress()] * len(operators)
    if query_id is not None:
        reached = [
            StoreProgress(*call(reached_in_store, *_store_of(inputs, query_id), files.url))
            for inputs in operators
        ]
    # Read the logs after the stores, see the module.
    planned, committed = (max(files.numbers(log), default=-1) for log in ("offsets", "commits"))
    is_under_way = planned > committed
    starts, ways_back = {}, list[tuple[OperatorInputs, WayBack]]()
    for inputs, has_reached in zip(operators, reached, strict=True):
        must_have = newest_epoch(
            lambda batch: files.text(f"offsets/{batch}"), committed, inputs.places, inputs.sources
        )
        if must_have is not None and -1 < has_reached.written < must_have:
            url = inputs.operator.store_url(str(query_id))
            raise EpochsLostError(url, must_have, has_reached.written)
        if has_reached.written > planned or has_reached.reached > committed + 1:
            way_back = WayBack(files.url, committed, is_under_way, has_reached, must_have)
            ways_back.append((inputs, way_back))
        starts[inputs.operator.operator] = asdict(OperatorStart(files.url, must_have, committed))
    # With several operators, check all before the first change.
    for applies in (True,) if len(ways_back) == 1 else (False, True):
        for inputs, way_back in ways_back:
            store = _store_of(inputs, str(query_id))
            call(take_back_in_store, *store, replace(way_back, applies=applies))
    # A task of a killed driver may still write its planned epoch after this point.
    newest_of = zip(operators, reached, strict=True)
    repeated = [inputs for inputs, has in newest_of if is_under_way or has.written > committed]
    return json.dumps({"query": query_id, "operators": starts}), repeated


def _watch_first_commit(
    spark: SparkSession, operators: Sequence[OperatorInputs], query: StreamingQuery
) -> None:
    """Start a thread that waits for the query's first commit, and then notes in the stores that
    Spark committed this run's epoch. Without the note, the stores do not show if Spark committed
    the epoch of this run or the same epoch of an older run."""
    query_id, run_id = str(query.id), str(query.runId)
    ends = threading.Event()

    def watch() -> None:
        with suppress(PySparkException, Py4JError, OSError):  # the session has ended
            batch = _first_committed(query)
            while batch is None and query.isActive and not ends.wait(_SECONDS_BETWEEN_LOOKS):
                batch = _first_committed(query)
            # The batch may have been committed after the last look, before the query ended.
            batch = _first_committed(query) if batch is None else batch
            if batch is not None:
                for inputs in operators:
                    store = _store_of(inputs, query_id)
                    try:
                        called_near_stores(spark, _note_reached, *store, run_id, batch + 1)
                    except CowstateError as error:
                        _log.warning(_NOT_NOTED, batch, error)
        atexit.unregister(look_once_more)

    watching = threading.Thread(target=watch, name=f"cowstate-first-commit-{run_id}", daemon=True)

    def look_once_more() -> None:
        """Look for the first commit a last time, at the end of the process: a script may end right
        after its query has ended."""
        ends.set()
        watching.join(_SECONDS_AT_EXIT)

    atexit.register(look_once_more)
    watching.start()


def _first_committed(query: StreamingQuery) -> int | None:
    progress = [each for each in query.recentProgress if "commitOffsets" in each["durationMs"]]
    return int(progress[0]["batchId"]) if progress else None


def _note_reached(
    url: str, retry_seconds: float, options: Mapping[str, Any], run_id: str, epoch: int
) -> None:
    _opened(url, retry_seconds, options).starts.note_reached(run_id, epoch)


def _store_of(inputs: OperatorInputs, query_id: str) -> Store:
    operator = inputs.operator
    return operator.store_url(query_id), operator.store_retry_seconds, operator.store_options


def _opened(url: str, retry_seconds: float, options: Mapping[str, Any]) -> CompletedCheckpointStore:
    store = RetryingObjectStore(open_object_store(url, options), retry_seconds)
    return CompletedCheckpointStore(store)


def reached_in_store(
    url: str, retry_seconds: float, options: Mapping[str, Any], checkpoint: str
) -> StoreProgress:
    """The progress of an operator in a store. Raises StoreOfOtherCheckpointError if the store
    belongs to another checkpoint, and the errors of the store."""
    checkpoints = _opened(url, retry_seconds, options)
    checkpoints.starts.check_checkpoint(checkpoint)
    return _reached(checkpoints.bases.lineage())


def take_back_in_store(
    url: str, retry_seconds: float, options: Mapping[str, Any], way_back: WayBack
) -> None:
    """Note in an operator's store that the query was taken back: later epochs no longer count.

    Raises ConfigurationError if the store has changed since `way_back.seen` was read;
    EpochsLostError if the store lacks an epoch that the operator must have; RunChoiceError,
    NoEpochToAttachError and PartialEpochError if the store does not show the epoch from which the
    operator continues; and the errors of the store.
    """
    store = RetryingObjectStore(open_object_store(url, options), retry_seconds)
    runs = stored_runs(store)
    if any(name.run.run_id == way_back.run_id for name in runs.starts()):
        return  # noted already: Spark runs a task again if its executor was lost
    if _reached(lineage_of(runs.begun, runs.written)) != way_back.seen:
        raise ConfigurationError(
            f"another driver runs the query, too: {url} has changed while this driver took the "
            f"query back to batch {way_back.committed + 1}. This driver changed nothing. Stop one "
            "of the two, and start the query again"
        )
    (attachment,) = attachments_of(
        [runs],
        digest_of(way_back.checkpoint),
        way_back.committed,
        is_under_way=way_back.is_under_way,
    )
    newest = -1 if attachment.base is None else attachment.base.epoch
    if way_back.must_have is not None and newest < way_back.must_have:
        raise EpochsLostError(url, way_back.must_have, newest)
    if way_back.applies:
        attach(store, attachment, way_back.run_id, way_back.checkpoint)


def _reached(lineage: RunLineage) -> StoreProgress:
    return StoreProgress(lineage.written, lineage.reached, lineage.newest_run)
