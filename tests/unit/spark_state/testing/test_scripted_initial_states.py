"""ScriptedOperator handles an initial state in each API as a query does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row

from spark_state import ArrowStatefulProcessor
from spark_state.errors import ConfigurationError
from spark_state.processor.arrow.keyed_batch import KeyedBatch
from spark_state.testing import ScriptedOperator, ScriptedPandasOperator
from tests.support.processors.arrow_totals import ArrowTotals
from tests.support.processors.initial_states import BeginsWith, BeginsWithFrames, ExpiresWith
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals

SCHEMAS = {"rows": "key string, value long", "key": "key", "output": TOTALS_SCHEMA}
INITIAL: dict[str, Any] = {"rows": "total long, name string", "key": "name"}


class BeginsWithBatches(ArrowTotals):
    """ArrowTotals that begin with the rows of an initial state; each row counts ten."""

    def handleInitialBatch(self, batch: KeyedBatch, timerValues: Any) -> None:
        sums = np.add.reduceat(batch.rows["total"].to_numpy(), batch.starts)
        self.added(batch.keys, pc.multiply(batch.counts, 10), sums)


class NoInitialBatch(ArrowTotals):
    handleInitialBatch: Any = None


APIS: dict[str, tuple[type[ScriptedOperator], Any]] = {
    "rows": (ScriptedOperator, BeginsWith),
    "pandas": (ScriptedPandasOperator, BeginsWithFrames),
    "arrow": (ScriptedOperator, BeginsWithBatches),
}


@pytest.fixture(params=APIS)
def operator(request: pytest.FixtureRequest) -> Iterator[ScriptedOperator]:
    scripted, processor = APIS[request.param]
    with scripted(processor(), **SCHEMAS) as operator:
        yield operator


def totals(operator: ScriptedOperator) -> dict[str, tuple[int, int]]:
    return {key: (row["rows"], row["total"]) for key, row in operator.state("totals").items()}


def test_keys_with_and_without_input_begin_with_it_once(operator: ScriptedOperator) -> None:
    operator.restart(parallelism=3)
    operator.begin_with([(100, "a"), (200, "b"), Row(total=1000, name="a")], **INITIAL)
    output = operator.batch([("a", 1), ("c", 2)])
    assert sorted(output) == [Row(key="a", rows=21, total=1101), Row(key="c", rows=1, total=2)]
    assert totals(operator) == {"a": (21, 1101), "b": (10, 200), "c": (1, 2)}
    operator.restart(parallelism=2)
    operator.batch([("b", 1)])
    assert totals(operator) == {"a": (21, 1101), "b": (11, 201), "c": (1, 2)}


def test_a_first_batch_without_rows_has_it(operator: ScriptedOperator) -> None:
    operator.begin_with([{"total": 5, "name": "a"}], **INITIAL)
    assert operator.batch() == []
    assert totals(operator) == {"a": (10, 5)}
    operator.batch()
    assert totals(operator) == {"a": (10, 5)}


def test_a_first_batch_that_fails_has_it_again() -> None:
    class FailsOnce(BeginsWith):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for row in (seen := list(rows)):
                if row.value < 0:
                    raise ValueError("a negative value")
            return super().handleInputRows(key, iter(seen), timerValues)

    with ScriptedOperator(FailsOnce(), **SCHEMAS) as operator:
        operator.begin_with([(7, "a")], **INITIAL)
        with pytest.raises(ValueError, match="a negative value"):
            operator.batch([("b", -1)])
        operator.batch([("b", 1)])
        assert totals(operator) == {"a": (10, 7), "b": (1, 1)}


def test_timers_that_it_registers_fire() -> None:
    with ScriptedOperator(ExpiresWith(), **SCHEMAS, time_mode="processingtime") as operator:
        operator.restart(parallelism=2)
        operator.begin_with([(60_000, "a"), (90_000, "b")], **INITIAL)
        assert operator.batch(at=0) == []
        assert operator.timers() == {"a": [60_000], "b": [90_000]}
        assert operator.batch(at=60_000) == [Row(key="a", rows=-1, total=60_000)]


@pytest.mark.parametrize("mode", ["none", "NONE", "processingTime", "PROCESSINGTIME"])
def test_a_time_mode_is_named_in_upper_or_lower_case(mode: str) -> None:
    with ScriptedOperator(RunningTotals(), **SCHEMAS, time_mode=mode) as operator:
        assert operator.batch([("a", 1)]) == [Row(key="a", rows=1, total=1)]
        assert operator.timers() == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "total"}, r"has the key \(total bigint\), rows \(key string\)"),
        ({"key": ["name", "total"]}, "both need the same types"),
        ({"key": "user"}, "'user' is no column of the initial state, which are total, name"),
    ],
)
def test_another_key_is_refused(changes: dict[str, Any], message: str) -> None:
    with (
        ScriptedOperator(BeginsWith(), **SCHEMAS) as operator,
        pytest.raises(ConfigurationError, match=message),
    ):
        operator.begin_with([], **{**INITIAL, **changes})


def test_a_processor_without_the_method_is_refused() -> None:
    class NoBeginning(ArrowStatefulProcessor):
        def init(self, handle: Any) -> None: ...

        def handleInputBatch(self, batch: KeyedBatch, timerValues: Any) -> Any:
            return iter(())

    with (
        ScriptedOperator(NoBeginning(), **SCHEMAS) as operator,
        pytest.raises(ConfigurationError, match="no method handleInitialBatch"),
    ):
        operator.begin_with([], **INITIAL)


def test_after_the_first_batch_it_comes_too_late() -> None:
    with ScriptedOperator(BeginsWith(), **SCHEMAS) as operator:
        operator.batch()
        with pytest.raises(ConfigurationError, match="the first batch has run"):
            operator.begin_with([], **INITIAL)


def test_rows_that_do_not_fit_are_refused_when_they_are_given() -> None:
    with ScriptedOperator(BeginsWith(), **SCHEMAS) as operator:
        for row in (("much", "a"), ("a",)):
            with pytest.raises((ConfigurationError, pa.ArrowException, ValueError)):
                operator.begin_with([row], **INITIAL)
        operator.batch([("a", 1)])
        assert totals(operator) == {"a": (1, 1)}


def test_another_processor_must_take_it_as_well() -> None:
    with ScriptedOperator(BeginsWithBatches(), **SCHEMAS) as operator:
        operator.begin_with([(1, "a")], **INITIAL)
        with pytest.raises(ConfigurationError, match="NoInitialBatch has no method handleInitia"):
            operator.restart(processor=NoInitialBatch())


def test_columns_may_have_any_names() -> None:
    rows = "key string, value long, _key_group long, _initial long, _batch_ms long"
    schemas = SCHEMAS | {"rows": rows}
    with ScriptedOperator(BeginsWith(), **schemas, time_mode="ProcessingTime") as operator:
        operator.begin_with([(1, "a")], **INITIAL)
        operator.batch([("a", 1, 2, 3, 4)])
        assert totals(operator) == {"a": (11, 2)}
