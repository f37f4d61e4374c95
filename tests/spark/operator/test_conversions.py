"""Values are converted into states and output rows as by Spark's own operator, or without loss.

Random values of Python's, NumPy's and pandas' types go into fields of all types. If Spark keeps a
value whole, the value must be the same in cowstate. If Spark loses a part of the value or fails,
cowstate refuses the value or keeps the whole value. A test prints its seed; the seed gives the same
values again.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from spark_state.errors import OutputRowError
from spark_state.processor.output_rows import OutputEncoder
from spark_state.processor.schemas import arrow_schema
from spark_state.testing.ddl_schemas import schema_of
from tests.support.drawn_seeds import drawn, seeds
from tests.support.processors.processors import Processor
from tests.support.processors.random_values import TYPES, kept, random_value
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB, configured

pytestmark = pytest.mark.spark

SMALL, LARGE = 40, 400


class Case(NamedTuple):
    """A value for a field of a type."""

    value: Any
    field_type: str

    def __str__(self) -> str:
        return f"{self.value!r} of {type(self.value).__name__} into {self.field_type}"


def cases_of(seed: int | None) -> list[Case]:
    rng = random.Random(drawn(seed))
    count = SMALL if seed is None else LARGE
    types = (rng.choice(TYPES) for _ in range(count))
    return [Case(random_value(rng, each), each) for each in types]


REFUSED = object()
"""In the place of a value: the conversion failed."""


class PutsValues(Processor):
    """A processor that puts values into states, one state for each type, and notes the states in a
    file."""

    def __init__(self, cases: dict[int, Case], notes: Path) -> None:
        self._cases, self._notes = pickle.dumps(cases), notes

    def init(self, handle: Any) -> None:
        self._states = {each: handle.getValueState(str(n), f"x {each}") for n, each in TYPE_OF}

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        with self._notes.open("ab", buffering=0) as notes:
            for number, case in pickle.loads(self._cases).items():
                # Java closes the connection if it cannot unpickle a value. Then this note stays.
                notes.write(pickle.dumps((number, None)))
                state = self._states[case.field_type]
                try:
                    state.update((case.value,))
                    got = state.get()
                except OSError:
                    raise
                except Exception:
                    continue
                notes.write(pickle.dumps((number, (None if got is None else got[0],))))
        yield Row(n=1)


TYPE_OF = list(enumerate(TYPES))


def put_into_states(spark: SparkSession, cases: list[Case], folder: Path, on_spark: bool) -> Any:
    """The value of each state after its put, or REFUSED."""
    results: dict[int, Any] = {}
    while left := {n: case for n, case in enumerate(cases) if n not in results}:
        notes = folder / f"notes-{len(results)}-{on_spark}"
        notes.touch()
        rows = spark.range(1).groupBy("id")
        call = rows.transformWithState if on_spark else _on_cowstate(rows)
        try:
            call(PutsValues(left, notes), "n long", "update", "None").collect()
        except PySparkException:
            assert on_spark
        with notes.open("rb") as file:
            while file.peek():
                number, got = pickle.load(file)
                results[number] = REFUSED if got is None else got[0]
        assert notes.stat().st_size
    return results


def _on_cowstate(grouped: Any) -> Any:
    return lambda *call: spark_state.transform_with_state(grouped, *call)


@pytest.mark.parametrize("seed", seeds(soaks=20))
def test_states_hand_out_what_spark_hands_out_or_refuse_it(
    spark: SparkSession, tmp_path: Path, seed: int | None
) -> None:
    cases = cases_of(seed)
    with configured(spark, {PROVIDER_KEY: ROCKSDB}):
        in_spark = put_into_states(spark, cases, tmp_path, on_spark=True)
    here = put_into_states(spark, cases, tmp_path, on_spark=False)
    wrong = [
        f"{case}: {in_spark[n]!r} in Spark, {here[n]!r} here"
        for n, case in enumerate(cases)
        if not agree(case, in_spark[n], here[n], by_name=False)
    ]
    assert wrong == []


def agree(case: Case, in_spark: Any, here: Any, by_name: bool) -> bool:
    """Return True if cowstate keeps its promise about a value, given the value in Spark."""
    lost = in_spark is REFUSED or not kept(case.value, in_spark, case.field_type, by_name)
    if here is REFUSED:
        return lost
    if lost:
        return kept(case.value, here, case.field_type, by_name)
    return form(in_spark) == form(here)


def form(value: Any) -> str:
    """A text that differs for values of different types; entries of a map may be in any order."""
    return str(sorted(map(repr, value.items()))) if isinstance(value, dict) else repr(value)


class GivesOut(Processor):
    """A processor that emits the given row of each key. Spark converts all rows of a key together,
    and fails if rows need different conversions."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = pickle.dumps(rows)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield from (row for row in pickle.loads(self._rows) if row.n == key[0])


def row_of(number: int, case: Case) -> Row:
    values = {f"c{n}": case.value if each == case.field_type else None for n, each in TYPE_OF}
    return Row(n=number, **values)


SCHEMA = "n long, " + ", ".join(f"c{n} {each}" for n, each in TYPE_OF)
ARROW = arrow_schema(schema_of(SCHEMA, "schema"))


def is_taken_by_spark(row: Row, case: Case) -> bool:
    """Return True if Spark's Python worker converts a row, and Python can represent its values."""
    if case.field_type.startswith("map<") and isinstance(case.value, list) and None in case.value:
        return False  # Arrow ends the process
    try:
        pa.RecordBatch.from_pylist([row.asDict(True)], schema=ARROW).to_pylist()
    except Exception:
        return False
    return True


def is_taken_here(row: Row) -> bool:
    encoder = OutputEncoder(ARROW)
    try:
        encoder.add([row])
        encoder.batch()
    except OutputRowError:
        return False
    return True


def given_out(output: DataFrame, cases: list[Case]) -> dict[int, Any]:
    columns = {each: f"c{n}" for n, each in TYPE_OF}
    return {row.n: row[columns[cases[row.n].field_type]] for row in output.collect()}


@pytest.mark.parametrize("seed", seeds(soaks=20))
def test_output_rows_have_the_values_of_spark_or_are_refused(
    spark: SparkSession, seed: int | None
) -> None:
    cases = cases_of(seed)
    rows = [row_of(number, case) for number, case in enumerate(cases)]
    grouped = spark.range(len(cases)).groupBy("id")
    call = SCHEMA, "update", "None"
    with configured(spark, {PROVIDER_KEY: ROCKSDB}):
        pairs = zip(rows, cases, strict=True)
        taken = [row for row, case in pairs if is_taken_by_spark(row, case)]
        in_spark = given_out(grouped.transformWithState(GivesOut(taken), *call), cases)
    taken = [row for row in rows if is_taken_here(row)]
    here = given_out(spark_state.transform_with_state(grouped, GivesOut(taken), *call), cases)
    both = [(in_spark.get(n, REFUSED), here.get(n, REFUSED)) for n in range(len(cases))]
    wrong = [
        f"{case}: {spark_value!r} in Spark, {value!r} here"
        for case, (spark_value, value) in zip(cases, both, strict=True)
        if not agree(case, spark_value, value, by_name=True)
    ]
    assert wrong == []
