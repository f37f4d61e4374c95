"""Plans the adoption of Spark's transformWithState as an operator of cowstate. Pure.

The state of the last committed batch becomes an epoch of the same number in a new store. Spark's
own state moves away, because Spark refuses a query whose checkpoint has the state of an operator
that the query lacks. In time modes other than "None" the query gets one more source, the operator's
clock, see clock_source. The offset log gets a line for the clock, which says that the clock has no
offset yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.provider.query_checkpoint import (
    TRANSFORM_WITH_STATE,
    LogEntry,
    QueryCheckpoint,
    StatefulOperator,
)
from spark_state.state_descriptor import EVENT_TIMERS, PROCESSING_TIMERS, StateKind

OPERATOR = "operator-0"
"""The name that `enable` gives the only operator of a query."""

NO_OFFSET = "-"
"""The text in Spark's offset log for a source without an offset."""

_KINDS: dict[str, StateKind] = {
    "ValueState": "value",
    "ListState": "list",
    "MapState": "map",
    "TimerState": "timers",
}
_TIME_MODES = {
    "NoTime": "None",
    "ProcessingTime": "ProcessingTime",
    "EventTime": "EventTime",
}
_TIMERS = {"ProcessingTime": PROCESSING_TIMERS, "EventTime": EVENT_TIMERS}


@dataclass(frozen=True, slots=True)
class StateVariable:
    """A state of Spark's operator. `name`: the name on cowstate; `expires`: True if values have a
    time to live."""

    name: str
    kind: StateKind
    expires: bool


@dataclass(frozen=True, slots=True)
class OperatorAdoptionPlan:
    """The steps of an adoption.

    - `variables`: the states.
    - `epoch`: the last committed batch.
    - `batch_ms`: the time of this batch.
    - `time`: the times in the barriers of all subtasks, None in time mode "None". The time of a
      subtask's next timer is not known to the plan.
    - `edits`: log entries that get a line for the clock.
    """

    checkpoint: QueryCheckpoint
    operator: StatefulOperator
    time_mode: str
    variables: tuple[StateVariable, ...]
    epoch: int
    batch_ms: int
    time: SubtaskTime | None
    edits: tuple[LogEntry, ...]

    @property
    def sources(self) -> int:
        """The number of sources of the query. The log does not show which sources feed an
        operator."""
        # The first two lines are the version and the settings.
        return self.checkpoint.offsets[self.epoch].text.rstrip().count("\n") - 1

    @staticmethod
    def edited(entry: LogEntry) -> str:
        """The text of an offset log entry with one more line, for the clock."""
        return f"{entry.text.rstrip()}\n{NO_OFFSET}"


def holds_transform_with_state(checkpoint: QueryCheckpoint) -> bool:
    """Return True if the state of a query includes the state of a transformWithState of Spark."""
    return any(
        operator.name.startswith(TRANSFORM_WITH_STATE) and operator.properties is not None
        for operator in checkpoint.operators
    )


def plan_operator_adoption(checkpoint: QueryCheckpoint, to: str) -> OperatorAdoptionPlan:
    """The plan for a checkpoint for which `holds_transform_with_state` is True.

    Raises UnsupportedOperationError or ConfigurationError with the reason and the way out.
    """
    operator = _only_operator(checkpoint, to)
    epoch = _committed(checkpoint)
    assert operator.properties is not None
    time_mode = _time_mode(checkpoint, operator.properties)
    timed = time_mode != "None"
    if timed:
        _check_sources(checkpoint, time_mode)
    logged = checkpoint.offsets[epoch].content
    time = None
    if timed:
        time = SubtaskTime(
            watermark_ms=int(logged["batchWatermarkMs"]),
            reached_ms=(_next_watermark(checkpoint, epoch) or None,),
            next_timer_ms=None,
            batch_ms=int(logged["batchTimestampMs"]),
        )
    return OperatorAdoptionPlan(
        checkpoint=checkpoint,
        operator=operator,
        time_mode=time_mode,
        variables=tuple(_variables(checkpoint, operator.properties, time_mode)),
        epoch=epoch,
        batch_ms=int(logged["batchTimestampMs"]),
        time=time,
        edits=tuple(entry for _, entry in sorted(checkpoint.offsets.items()) if timed),
    )


def _only_operator(checkpoint: QueryCheckpoint, to: str) -> StatefulOperator:
    if to != "cowstate":
        raise UnsupportedOperationError(
            f"{checkpoint.url} has the state of a transformWithState, which "
            "HDFSBackedStateStoreProvider cannot keep. Run cowstate adopt without --to"
        )
    if len(checkpoint.operators) > 1:
        names = ", ".join(f"{each.number} {each.name}" for each in checkpoint.operators)
        raise UnsupportedOperationError(
            f"{checkpoint.url} has the state of several operators ({names}), and adopt takes over "
            "a transformWithState only if it is the query's one operator with state: Spark would "
            "number the others anew. Start the query with a new checkpoint"
        )
    (operator,) = checkpoint.operators
    return operator


def _committed(checkpoint: QueryCheckpoint) -> int:
    if checkpoint.committed is None:
        raise ConfigurationError(
            f"{checkpoint.url} has no committed batch, so there is no state to adopt: start the "
            "query on cowstate with a new checkpoint"
        )
    if checkpoint.committed not in checkpoint.offsets:
        raise UnsupportedOperationError(
            f"{checkpoint.url}/offsets/{checkpoint.committed} is missing, which has the time of "
            "the last committed batch. Restore it from a copy"
        )
    return checkpoint.committed


def _time_mode(checkpoint: QueryCheckpoint, properties: Any) -> str:
    noted = str(properties["timeMode"])
    if noted not in _TIME_MODES:
        raise UnsupportedOperationError(
            f"{checkpoint.url} has a transformWithState of time mode {noted!r}; adopt knows "
            f"{', '.join(_TIME_MODES)}. Start the query with a new checkpoint"
        )
    return _TIME_MODES[noted]


def _check_sources(checkpoint: QueryCheckpoint, time_mode: str) -> None:
    """Raise UnsupportedOperationError unless the offset log has version v1.

    An entry of version v1 has a line for each source, in the order of the sources in the plan. The
    adoption appends the clock's line, so the clock must be the last source. This is not checked
    here: if the query has sources after the clock, the clock raises an error at the start, because
    it gets the offset of another source, see clock_source.
    """
    for entry in checkpoint.offsets.values():
        version = entry.text.split("\n")[0]
        if version != "v1":
            raise UnsupportedOperationError(
                f"{checkpoint.url}/{entry.path} has the offsets of sources in version {version}. "
                f"In time mode {time_mode!r} adopt takes over a query with a log of version v1. "
                "Start the query with a new checkpoint"
            )


def _next_watermark(checkpoint: QueryCheckpoint, epoch: int) -> int:
    """The watermark of the batch after `epoch`. If this batch is planned, its entry in the offset
    log has the watermark. If not, the entries of `epoch` in the offset log and in the commit log
    have watermarks, and the greater watermark counts."""
    if epoch + 1 in checkpoint.offsets:
        return int(checkpoint.offsets[epoch + 1].content["batchWatermarkMs"])
    reached = int(checkpoint.offsets[epoch].content["batchWatermarkMs"])
    if checkpoint.commit is not None:
        reached = max(reached, int(checkpoint.commit.content.get("nextBatchWatermarkMs", reached)))
    return reached


def _variables(checkpoint: QueryCheckpoint, properties: Any, time_mode: str) -> list[StateVariable]:
    variables = []
    for noted in properties["stateVariables"]:
        kind = _KINDS.get(noted["stateVariableType"])
        if kind is None:
            raise UnsupportedOperationError(
                f"state {noted['stateName']!r} of {checkpoint.url} is a "
                f"{noted['stateVariableType']}; adopt knows {', '.join(_KINDS)}. Start the query "
                "with a new checkpoint"
            )
        name = _TIMERS[time_mode] if kind == "timers" else str(noted["stateName"])
        variables.append(StateVariable(name, kind, bool(noted["ttlEnabled"])))
    if not variables:
        raise ConfigurationError(
            f"{checkpoint.url} has a transformWithState that declares no state, so there is "
            "nothing to adopt: start the query with a new checkpoint"
        )
    return sorted(variables, key=lambda variable: variable.name)
