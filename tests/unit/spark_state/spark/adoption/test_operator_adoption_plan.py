"""The plan of moving Spark's transformWithState to cowstate follows from the facts read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.adoption.adoption_plan import ROCKSDB_CLASS
from spark_state.spark.adoption.operator_adoption_plan import (
    StateVariable,
    holds_transform_with_state,
    plan_operator_adoption,
)
from spark_state.spark.provider.provider_class import PROVIDER_KEY
from spark_state.spark.provider.query_checkpoint import (
    LogEntry,
    QueryCheckpoint,
    StatefulOperator,
)
from tests.support.provider.stopped_checkpoints import operator_with, stopped_checkpoint

VARIABLES = (("total", "ValueState", True), ("last", "ListState", False), ("kinds", "MapState", 0))
TIMERS = ("$procTimers_keyToTimestamp", "TimerState", False)


def logged(batch: int, watermark_ms: int = 0, sources: int = 1, version: str = "v1") -> LogEntry:
    content = {
        "batchWatermarkMs": watermark_ms,
        "batchTimestampMs": 1_000 + batch,
        "conf": {PROVIDER_KEY: ROCKSDB_CLASS},
    }
    lines = [version, "{}", *(f'{{"offset": {source}}}' for source in range(sources))]
    return LogEntry(f"offsets/{batch}", "\n".join(lines), content)


def operator(
    time_mode: str = "NoTime", variables: Any = VARIABLES, number: int = 0
) -> StatefulOperator:
    properties: Mapping[str, Any] = {
        "timeMode": time_mode,
        "stateVariables": [
            {"stateName": name, "stateVariableType": kind, "ttlEnabled": bool(ttl)}
            for name, kind, ttl in variables
        ],
    }
    name = "transformWithStateInPySparkExec"
    return operator_with(name, number, partitions=0, properties=properties)


def checkpoint(stateful: StatefulOperator | None = None, **changes: Any) -> QueryCheckpoint:
    stopped = {
        "offsets": {batch: logged(batch, 500 * batch) for batch in (1, 2)},
        "commit": LogEntry("commits/2", "", {"nextBatchWatermarkMs": 1_700}),
        "operators": (stateful or operator(),),
    }
    return stopped_checkpoint(**{**stopped, **changes})


def test_every_state_is_taken_over_as_the_epoch_of_the_last_committed_batch() -> None:
    plan = plan_operator_adoption(checkpoint(), "cowstate")
    assert (plan.epoch, plan.batch_ms, plan.time_mode) == (2, 1_002, "None")
    assert plan.variables == (
        StateVariable("kinds", "map", False),
        StateVariable("last", "list", False),
        StateVariable("total", "value", True),
    )
    assert (plan.time, plan.edits) == (None, ())


def test_in_a_time_mode_the_watermarks_go_on_and_the_log_gets_a_source_without_an_offset() -> None:
    timed = operator("EventTime", [*VARIABLES, ("$eventTimers_keyToTimestamp", "TimerState", 0)])
    plan = plan_operator_adoption(checkpoint(timed), "cowstate")
    assert plan.time == SubtaskTime(1_000, (1_700,), None, 1_002)
    assert plan.variables[0] == StateVariable("$eventTimers", "timers", False)
    assert [entry.path for entry in plan.edits] == ["offsets/1", "offsets/2"]
    assert plan.edited(plan.edits[0]) == 'v1\n{}\n{"offset": 0}\n-'


def test_a_watermark_that_has_not_begun_is_no_event_time() -> None:
    offsets = {0: logged(0)}
    stopped = checkpoint(
        operator("ProcessingTime", [TIMERS]), planned=0, committed=0, offsets=offsets, commit=None
    )
    assert plan_operator_adoption(stopped, "cowstate").time == SubtaskTime(0, (None,), None, 1_000)


def test_a_planned_batch_runs_again_from_the_one_before() -> None:
    offsets = {batch: logged(batch, 500 * batch) for batch in (2, 3)}
    stopped = checkpoint(operator("EventTime"), planned=3, offsets=offsets)
    plan = plan_operator_adoption(stopped, "cowstate")
    assert plan.epoch == 2
    assert plan.time == SubtaskTime(1_000, (1_500,), None, 1_002)


def test_only_what_notes_its_states_is_taken_for_a_transform_with_state() -> None:
    assert holds_transform_with_state(checkpoint())
    assert not holds_transform_with_state(checkpoint(replace(operator(), properties=None)))
    assert not holds_transform_with_state(checkpoint(replace(operator(), name="stateStoreSave")))


@pytest.mark.parametrize(
    ("stopped", "to", "error", "message"),
    [
        (checkpoint(), "hdfs", UnsupportedOperationError, "without --to"),
        (
            checkpoint(operators=(operator(), operator(number=1))),
            "cowstate",
            UnsupportedOperationError,
            r"several operators \(0 transformWithStateInPySparkExec, 1 ",
        ),
        (checkpoint(committed=None), "cowstate", ConfigurationError, "no committed batch"),
        (
            checkpoint(offsets={1: logged(1)}),
            "cowstate",
            UnsupportedOperationError,
            "offsets/2 is missing",
        ),
        (
            checkpoint(operator("EventTime"), offsets={2: logged(2, version="v2")}),
            "cowstate",
            UnsupportedOperationError,
            "in version v2",
        ),
        (checkpoint(operator("Later")), "cowstate", UnsupportedOperationError, "'Later'"),
        (
            checkpoint(operator(variables=[("x", "QueueState", False)])),
            "cowstate",
            UnsupportedOperationError,
            "state 'x' of file:/q is a QueueState",
        ),
        (checkpoint(operator(variables=[])), "cowstate", ConfigurationError, "declares no state"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_and_named(
    stopped: QueryCheckpoint, to: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plan_operator_adoption(stopped, to)


def test_the_clock_is_behind_several_sources() -> None:
    stopped = checkpoint(operator("EventTime"), offsets={2: logged(2, sources=3)})
    plan = plan_operator_adoption(stopped, "cowstate")
    assert plan.sources == 3
    (entry,) = plan.edits
    assert plan.edited(entry).split("\n")[2:] == [
        '{"offset": 0}', '{"offset": 1}', '{"offset": 2}', "-"
    ]  # fmt: skip
