"""Reads of `format("statestore")` and `format("state-metadata")` in enabled sessions.

Spark's readers look into the query's checkpoint, where cowstate keeps no state. So in an enabled
session a read of these formats first looks for operators of cowstate:

    statestore       with stateVarName or readRegisteredTimers: the state in the store
                     `operator-<operatorId>` of the checkpoint's query, with Spark's columns;
                     if there is no such store, Spark answers
    state-metadata   Spark's own rows, and a row for each store `operator-<n>` of the query

The stores lie below `spark.cowstate.store` of the session. An operator with a name that the user
chose has no number, so these reads do not find the operator.

PySpark has a class of readers for classic Spark and a class for Spark Connect, see `connect_reads`.
Both classes read with the method `load`, which `answer_loads` replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.spark_checkpoint import listed_commits
from spark_state.spark.session.logical_plans import entries_of
from spark_state.spark.session.operator_configuration import is_enabled
from spark_state.spark.session.replaced_methods import replace_once
from spark_state.spark.stored.statestore_changes import changes_frame
from spark_state.spark.stored.statestore_columns import (
    StateRead,
    state_frame,
    timers_frame,
)
from spark_state.spark.stored.stored_operators import (
    deleted_states_of,
    operators_of,
    states_of,
)
from spark_state.state_descriptor import EVENT_TIMERS, PROCESSING_TIMERS

STATE, METADATA = "statestore", "state-metadata"
_MARK = "_cowstate_answers"
_METADATA_SCHEMA = (
    "operatorId bigint, operatorName string, stateStoreName string, numPartitions int, "
    "minBatchId bigint, maxBatchId bigint, operatorProperties string"
)
_TIME_MODES = {PROCESSING_TIMERS: "ProcessingTime", EVENT_TIMERS: "EventTime"}
_TIMER_STATES = {
    PROCESSING_TIMERS: "$procTimers_keyToTimestamp",
    EVENT_TIMERS: "$eventTimers_keyToTimestamp",
}


Answer = Callable[[Any, Any, Callable[[], DataFrame]], DataFrame]
"""Gets a reader with its format and options, the path or None, and a function that calls Spark's
own `load`. Returns the DataFrame of the read."""


def answer_loads(readers: Any, answer: Answer) -> None:
    """Replace `load` of a class of readers: later calls return the result of `answer`. Safe to call
    again."""
    replace_once(readers, "load", _MARK, partial(_answering, answer))


def _answering(answer: Answer, spark_load: Any) -> Any:
    @wraps(spark_load)
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        if format is not None:
            self.format(format)
        self.options(**options)
        return answer(self, path, lambda: spark_load(self, path, schema=schema))

    return load


def answer_statestore_reads() -> None:
    """Let reads of `statestore` and `state-metadata` find operators of cowstate, in this process.
    Safe to call again."""
    answer_loads(DataFrameReader, _answered)


def _answered(reader: DataFrameReader, path: Any, on_spark: Callable[[], DataFrame]) -> DataFrame:
    spark, source = reader._spark, str(reader._jreader.source()).lower()
    if source not in (STATE, METADATA) or not is_enabled(dict(spark.conf.getAll)):
        return on_spark()
    jreader: Any = reader._jreader
    given = {name.lower(): value for name, value in entries_of(jreader.extraOptions()).items()}
    if isinstance(path, str):
        given["path"] = path
    if source == STATE:
        ours = _state(spark, given)
        return on_spark() if ours is None else ours
    spark_rows = on_spark()
    rows = _metadata(spark, given.get("path", ""), given.get("batchid"))
    return spark_rows.union(rows) if rows is not None else spark_rows


def _state(spark: SparkSession, given: Mapping[str, str]) -> DataFrame | None:
    """The state that a read asks for; None if the state is not cowstate's. Raises Spark's own
    errors for options that Spark refuses."""
    of_timers = given.get("readregisteredtimers", "false").lower() == "true"
    name = given.get("statevarname", "").strip()
    if not name and not of_timers:
        return None
    asked = _options_of_spark(spark, given)
    operators = operators_of(given["path"], dict(spark.conf.getAll))
    operator = operators.get(asked.operatorId())
    if operator is None:
        return None
    feed, partitions = asked.readChangeFeedOptions(), asked.fromSnapshotOptions()
    last = feed.get().changeEndBatchId() if asked.readChangeFeed() else asked.batchId()
    read = StateRead(
        operator,
        name,
        epoch=operator.epoch_of(last),
        flatten=asked.flattenCollectionTypes(),
        partition=partitions.get().snapshotPartitionId() if partitions.isDefined() else None,
    )
    if of_timers:
        return timers_frame(spark, read)
    if asked.readChangeFeed():
        return changes_frame(spark, read, feed.get().changeStartBatchId())
    return state_frame(spark, read)


def _options_of_spark(spark: SparkSession, given: Mapping[str, str]) -> Any:
    """The options of a read as Spark's own reader parses and checks the options."""
    jvm: Any = spark._jvm
    session = spark._jsparkSession
    conf = session.sessionState().newHadoopConf()
    package = jvm.org.apache.spark.sql.execution.datasources.v2.state
    return package.StateSourceOptions.apply(session, conf, dict(given))


def _metadata(spark: SparkSession, checkpoint: str, batch: str | None) -> DataFrame | None:
    """A row for each operator of cowstate; None if there are no operators."""
    operators = operators_of(checkpoint, dict(spark.conf.getAll))
    if not operators:
        return None
    batches = [*listed_commits(open_object_store(checkpoint))] or [-1]
    committed = batches[-1] if batch is None else int(batch)
    rows = []
    for number, operator in sorted(operators.items()):
        try:
            checkpoint_of_batch = operator.history.checkpoint_at(operator.epoch_of(committed))
        except VersionNotRetainedError:
            continue  # the operator has no committed epoch
        # Spark lists the states that init declares, also the deleted states.
        states = states_of(checkpoint_of_batch) | deleted_states_of(checkpoint_of_batch)
        properties = {
            "timeMode": next((_TIME_MODES[n] for n in states if n in _TIME_MODES), "NoTime"),
            "stateVariables": [_state_variable(state) for state in states.values()],
        }
        partitions = checkpoint_of_batch.parallelism
        row = (number, operator.name, "default", partitions, batches[0], batches[-1])
        rows.append((*row, json.dumps(properties)))
    return spark.createDataFrame(rows, _METADATA_SCHEMA)


def _state_variable(state: StateSchema) -> dict[str, Any]:
    """The properties that Spark's metadata lists for a state of this kind."""
    kind = "Timer" if state.kind == "timers" else state.kind.capitalize()
    return {
        "stateName": _TIMER_STATES.get(state.name, state.name),
        "stateVariableType": f"{kind}State",
        "ttlEnabled": state.ttl_ms is not None,
    }
