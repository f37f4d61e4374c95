"""`transform_with_state`: the plan that runs a PySpark StatefulProcessor on cowstate.

input -> rows with their key group, see operator_input
      -> repartitionById(parallelism, subtask of the key group)
      -> mapInArrow(one subtask)        no step may come between these two
      -> output rows
"""

from __future__ import annotations

import logging
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructField, StructType

from spark_state.errors import ConfigurationError, KeyGroupError, UnsupportedOperationError
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.processor.condition_errors import unknown_output_mode, unparsable_schema
from spark_state.processor.handles import record_states
from spark_state.processor.input.epoch_time import both_times, no_time, time_mode_named
from spark_state.processor.module_sources import sources_of
from spark_state.processor.pickles import dumps_processor
from spark_state.processor.processor_api import ROW_API, ProcessorApi, by_key, in_arrow
from spark_state.processor.processor_run import ProcessorSpec, RunPlan
from spark_state.processor.schemas import (
    ParsedSchemas,
    arrow_schema,
    check_nullable,
    key_columns,
)
from spark_state.processor.timed_steps import timers_of
from spark_state.spark.input.event_time_columns import with_event_time
from spark_state.spark.input.operator_call import OperatorCall, lacks_protobuf
from spark_state.spark.input.operator_input import OperatorInput, operator_input
from spark_state.spark.operator.batch_task import batch_task
from spark_state.spark.operator.early_hosts import start_hosts_early
from spark_state.spark.operator.operator_task import streaming_task
from spark_state.spark.operator.store_check import check_store
from spark_state.spark.queries.classic_queries import check_classic_queries
from spark_state.spark.queries.connect_queries import check_connect_queries
from spark_state.spark.queries.foreach_batch import complete_epochs_of_foreach_batch
from spark_state.spark.queries.restore_source import restore_source
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.failure_causes import say_causes_first
from spark_state.spark.session.operator_configuration import (
    FALLBACK_KEY,
    OperatorConfiguration,
    parse_configuration,
    runs_on_spark_instead,
)
from spark_state.spark.session.pandas_settings import block_size, pandas_form
from spark_state.spark.session.planned_operators import function_name
from spark_state.spark.session.session_facts import session_facts
from spark_state.spark.session.worker_interpreter import use_driver_interpreter
from spark_state.spark.session.worker_sockets import hint_at_sockets
from spark_state.subtasks.epoch_request import OperatorSpec, RestoreSource

_ENCODING_KEY = "spark.sql.streaming.stateStore.encodingFormat"
_LARGE_TYPES_KEY = "spark.sql.execution.arrow.useLargeVarTypes"
_OUTPUT_MODES = ("append", "complete", "update")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_log = logging.getLogger(__name__)


def transform_with_state(
    grouped: Any,
    processor: StatefulProcessor,
    output_schema: StructType | str,
    output_mode: str,
    time_mode: str,
    initial_state: Any = None,
    event_time_column_name: str = "",
    *,
    name: str | None = None,
    broadcast: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Run a StatefulProcessor on keyed state that lives beside the processor in Python.

    - `grouped`: the result of `df.groupBy(…)`, for a streaming or a batch DataFrame. In a batch
      DataFrame every key starts without state, and no state is kept.
    - `processor`: an unmodified PySpark StatefulProcessor of the row API. Each task runs a copy.
    - `output_schema`: the schema of the rows that the processor yields, a StructType or DDL text.
    - `output_mode`: "append", "update" or "complete", in upper or lower case. As in Spark, the mode
      does not change the rows that the processor yields.
    - `time_mode`: "None", "ProcessingTime" or "EventTime", in upper or lower case. "EventTime"
      needs a watermark on a column of `df`.
    - `initial_state`: the result of `df.groupBy(…)` for a batch DataFrame. Its key must have the
      types of the operator's key. `processor.handleInitialState` gets the rows in the first batch
      of a query. A restart needs the same argument again.
    - `event_time_column_name`: a timestamp column of the output, the event time for the operators
      downstream; `df` must have a watermark. The query fails if the processor yields a late row.
    - `name`: the name of the operator, and of its directory below the query's directory; the class
      name of the processor if None. Two operators of one query need two names, and a restart needs
      the same name.

    - `broadcast`: streaming DataFrames by name. All their rows reach every subtask, which calls
      `processor.handleBroadcastRows(name, rows, state)` before the keyed rows of a batch. `state`
      has the broadcast states of the processor, by name.

    Returns the output rows. Raises ConfigurationError, KeyGroupError or UnsupportedOperationError
    for wrong arguments, and CheckpointStoreError for a store that cannot be used. If Spark has an
    error condition for the mistake, the error has this condition. Errors while the query runs come
    in the exception of the query.
    """
    needed = grouped, processor, output_schema, output_mode, time_mode
    call = OperatorCall("rows", *needed, initial_state, event_time_column_name, broadcast or {})
    return plan_or_fall_back(call, name)


def transform_with_state_in_pandas(
    grouped: Any,
    processor: StatefulProcessor,
    output_schema: StructType | str,
    output_mode: str,
    time_mode: str,
    initial_state: Any = None,
    event_time_column_name: str = "",
    *,
    name: str | None = None,
    broadcast: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Run a processor of Spark's pandas API on keyed state, as transform_with_state does. The
    processor gets the rows of a key as an iterator of pandas DataFrames, and yields pandas
    DataFrames."""
    needed = grouped, processor, output_schema, output_mode, time_mode
    call = OperatorCall("pandas", *needed, initial_state, event_time_column_name, broadcast or {})
    return plan_or_fall_back(call, name)


def transform_with_state_in_arrow(
    grouped: Any,
    processor: ArrowStatefulProcessor,
    output_schema: StructType | str,
    output_mode: str,
    time_mode: str,
    initial_state: Any = None,
    event_time_column_name: str = "",
    *,
    name: str | None = None,
    broadcast: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Run an ArrowStatefulProcessor on keyed state, as transform_with_state does. The processor
    gets the rows of many keys as a pyarrow Table, and yields pyarrow Tables. Spark has no such
    operator."""
    needed = grouped, processor, output_schema, output_mode, time_mode
    call = OperatorCall("arrow", *needed, initial_state, event_time_column_name, broadcast or {})
    return plan_or_fall_back(call, name)


def plan_or_fall_back(call: OperatorCall, name: str | None) -> DataFrame:
    """Plan the operator of a call. If cowstate cannot run the call, and `spark.cowstate.fallback`
    is "spark", plan Spark's own operator. `name`: the operator's name; the class name of the
    processor if None."""
    call.check_grouped()
    spark = call.grouped._df.sparkSession
    try:
        return _planned(call, name)
    except (UnsupportedOperationError, KeyGroupError) as error:
        method = call.spark_method
        if method is None or not runs_on_spark_instead(dict(spark.conf.getAll)):
            raise
        problem = lacks_protobuf()
        if problem is not None:
            raise ConfigurationError(
                f"{method} of {type(call.processor).__name__} cannot run on cowstate: {error}. It "
                f"cannot run on Spark, as {FALLBACK_KEY} says, because Spark's operator needs "
                f"protobuf ({problem}): pip install --upgrade protobuf, in the environments of the "
                "driver and of the workers"
            ) from error
        warnings.warn(
            f"{method} of {type(call.processor).__name__} runs on Spark and not on cowstate: "
            f"{error}",
            stacklevel=3,
        )
        return call.on_spark(method)


def _planned(call: OperatorCall, name: str | None) -> DataFrame:
    df: DataFrame = call.grouped._df
    spark = df.sparkSession
    use_driver_interpreter(spark)
    if str(call.output_mode).lower() not in _OUTPUT_MODES:
        raise unknown_output_mode(call.output_mode)
    mode, api = time_mode_named(call.time_mode), _api_of(call, spark)
    api.check_processor(call.processor)
    operator = _operator_name(call.processor, name)
    configuration = parse_configuration(dict(spark.conf.getAll), session_facts(spark))
    if df.isStreaming:
        start_hosts_early(spark, configuration.hosts)
    rows = operator_input(call, mode, operator, configuration, api)
    output = _struct(call.output_schema, "output_schema")
    spec = _processor_spec(call, api, mode, rows, output, configuration)
    if not df.isStreaming:
        function = batch_task(spec, configuration.max_parallelism)
    else:
        check_store(spark, configuration)
        hint_at_sockets(spark)
        key_schema = StructType([StructField(f.name, f.dataType) for f in rows.key_fields]).json()
        restored = restore_source(spark, configuration, operator, key_schema)
        planned = operator_spec(operator, configuration, key_schema, spec, restored)
        function = streaming_task(planned)
        function.__name__ = function_name(planned)
        _log.info(
            "operator %r has %d subtasks in each batch; a smaller spark.cowstate.parallelism makes "
            "batches of few rows quicker, and may differ at every restart",
            operator,
            planned.parallelism,
        )
    _watch_queries(spark)
    emitted = rows.by_subtask.mapInArrow(function, output)
    return with_event_time(emitted, call.event_time_column_name, df)


def _watch_queries(spark: SparkSession) -> None:
    """Prepare this process for the queries in which the operator will run: errors begin with their
    cause, starts are checked, and epochs are completed in foreachBatch."""
    say_causes_first()
    if is_connect(spark):
        check_connect_queries()
    else:
        complete_epochs_of_foreach_batch()
        check_classic_queries()


def _processor_spec(
    call: OperatorCall,
    api: ProcessorApi,
    mode: str,
    rows: OperatorInput,
    output: StructType,
    configuration: OperatorConfiguration,
) -> ProcessorSpec:
    spark, pickled = rows.by_subtask.sparkSession, _pickle(call.processor)
    states = record_states(pickle.loads(pickled), ParsedSchemas(_struct), mode, api.handle_type)
    if spark.conf.get(_ENCODING_KEY) == "avro":
        check_nullable(states.keyed)
    steps = (*rows.first_steps, *api.steps(mode, states.keyed))
    large_types = spark.conf.get(_LARGE_TYPES_KEY, "false") == "true"
    return ProcessorSpec(
        pickled_processor=pickled,
        sources=sources_of(pickled),
        run_plan=RunPlan(
            rows.inputs,
            steps,
            api.row_form,
            api.handle_type,
            no_time if mode == "None" else both_times,
            rows.event_times,
            call.event_time_column_name or None,
        ),
        key_columns=key_columns(rows.key_fields),
        states=(*states.keyed, *timers_of(mode)),
        output_schema=arrow_schema(output, large_types=large_types),
        spool_bytes=configuration.output_memory_mb << 20,
        operator_states=states.operator,
        deleted_states=states.deleted,
    )


def _operator_name(processor: Any, name: str | None) -> str:
    operator = type(processor).__name__ if name is None else name
    if not _NAME.fullmatch(operator):
        raise ConfigurationError(
            f"operator name {operator!r} cannot name a directory; use letters, digits, _ . and -, "
            "beginning with a letter or digit"
        )
    return operator


def _api_of(call: OperatorCall, spark: SparkSession) -> ProcessorApi:
    match call.api:
        case "rows":
            return ROW_API
        case "pandas":
            return by_key(pandas_form(spark))
        case "arrow":
            return in_arrow(block_size(spark))


def _struct(schema: StructType | str, what: str) -> StructType:
    parsed: Any = schema
    if isinstance(schema, str):
        try:
            parsed = StructType.fromDDL(schema)
        except ParseException as error:
            raise unparsable_schema(what, schema, error) from error
    if not isinstance(parsed, StructType):
        raise ConfigurationError(f"{what}: {schema!r} is neither a StructType nor DDL text")
    return parsed


def _pickle(processor: Any) -> bytes:
    try:
        return dumps_processor(processor)
    except UnsupportedOperationError:
        raise
    except Exception as error:  # an object may raise any error when it cannot be pickled
        raise ConfigurationError(
            f"{type(processor).__name__} cannot be pickled: {error}; open files and connections in "
            "init, not in the constructor"
        ) from error


def operator_spec(
    operator: str,
    configuration: OperatorConfiguration,
    key_schema_json: str,
    processor: ProcessorSpec,
    restored: RestoreSource | None,
) -> OperatorSpec:
    """The operator as its tasks get it, with the settings of the session. `restored`: the store
    and the epoch from which an operator with an empty store gets its first state; None to begin
    without state."""
    return OperatorSpec(
        operator=operator,
        plan_id=uuid4().hex,
        store_root=configuration.store_root,
        parallelism=configuration.parallelism,
        max_parallelism=configuration.max_parallelism,
        key_schema_json=key_schema_json,
        processor=processor,
        checkpoints=replace(configuration.checkpoints, restore_from=restored),
        hosts=configuration.hosts,
        backend=configuration.backend,
    )
