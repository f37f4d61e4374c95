"""The plans that `python_state.py` measures: cowstate's operator, Spark's own, and none.

Each processor makes the state calls of its kind once for each key, and emits a row for the key, so
that all plans of a case have the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row

import spark_state
from spark_state import ArrowStatefulProcessor
from tests.benchmarks.count_rows import CountRows

OUTPUT = "key string, count bigint"
TTL_MS = 3_600_000
Plan = Callable[[DataFrame], DataFrame]


class CountForAnHour(CountRows):
    """CountRows with a time to live."""

    ttl_ms = TTL_MS


class CountWithTimers(CountRows):
    """CountRows with one timer per key, which is registered and fires in the same batch."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs())
        return super().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        return iter(())


class AppendRows(CountRows):
    """Processor with one append to a list per key. Emits the number of appended rows."""

    def init(self, handle: Any) -> None:
        self._rows = handle.getListState("rows", "v string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        values = [(row.v0,) for row in rows]
        self._rows.appendList(values)
        yield Row(key=key[0], count=len(values))


class CountInMap(CountRows):
    """Processor with one getValue and one updateValue of a map for each row. Emits the last
    count."""

    def init(self, handle: Any) -> None:
        self._counts = handle.getMapState("counts", "digit string", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = 0
        for row in rows:
            digit = (row.v0[2:3],)
            before = self._counts.getValue(digit)
            count = before[0] + 1 if before else 1
            self._counts.updateValue(digit, (count,))
        yield Row(key=key[0], count=count)


class CountByRules(CountRows):
    """CountRows that also reads a rule for each key. Rules come from a broadcast stream."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._rules = handle.getBroadcastState("rules", "digit string", "weight bigint")

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        for row in rows:
            state["rules"].updateValue((row.v0[2:3],), (1,))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._rules.getValue((key[0][-1],))
        return super().handleInputRows(key, rows, timerValues)


class CountRowsOfFrames(CountRows):
    """CountRows in the pandas API."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            count += len(frame)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "count": [count]})


class CountRowsInArrow(ArrowStatefulProcessor):
    """CountRows for whole Arrow batches."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        before = self._count.get_many(batch.keys).field("n").fill_null(0)
        count = pc.add(before, batch.counts)
        self._count.put_many(batch.keys, count)
        yield batch.keys.table.append_column("count", count)


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one micro-batch, and the plans that process the rows.

    `keys`: the number of keys; 0 draws about 44,000 distinct keys for 50,000 rows, from a large
    range. `ours` and `peer`: names of PLANS. `by_default`: True if the case runs without `--cases`.
    """

    name: str
    rows: int
    keys: int
    columns: int = 1
    ours: str = "cowstate"
    peer: str = "row_api"
    by_default: bool = True

    @property
    def plans(self) -> tuple[str, str, str]:
        """The names of the floor, of cowstate's plan and of its peer."""
        return "identity", self.ours, self.peer


def cases(rows: int) -> list[Case]:
    """All cases, with micro-batches of `rows` rows."""
    kinds = [
        Case(f"{kind}44k", rows, 0, 1, f"cowstate_{kind}", f"row_api_{kind}", False)
        for kind in ("list", "map", "ttl", "timers")
    ]
    return [
        Case("keys44k", rows, 0),
        Case("hot1000", rows, 1000),
        Case("wide", rows, 1000, 20),
        *kinds,
        Case("broadcast44k", rows, 0, 1, "cowstate_broadcast", "row_api", False),
        Case("rocksdb44k", rows, 0, 1, "cowstate_rocksdb", "cowstate", False),
        Case("arrow44k", rows, 0, 1, "cowstate_arrow", "row_api", False),
        Case("arrow1000", rows, 1000, 1, "cowstate_arrow", "row_api", False),
        Case("pandas44k", rows, 0, 1, "cowstate_pandas", "pandas_api", False),
        Case("pandas1000", rows, 1000, 1, "cowstate_pandas", "pandas_api", False),
    ]


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows to Python and back: the floor."""
    for batch in batches:
        count = pa.array([1] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("key"), count], ["key", "count"])


def _identity(df: DataFrame) -> DataFrame:
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return df.repartition(partitions, "key").mapInArrow(identity, OUTPUT)


def _cowstate(
    processor: Any, time_mode: str = "None", transform: Any = spark_state.transform_with_state
) -> Plan:
    def plan(df: DataFrame) -> DataFrame:
        return transform(
            df.groupBy("key"), processor, OUTPUT, output_mode="update", time_mode=time_mode
        )

    return plan


def _in_rocksdb(plan: Plan) -> Plan:
    """A plan of cowstate with state in RocksDB. The case's peer may be the plan with state on the
    heap."""

    def planned(df: DataFrame) -> DataFrame:
        df.sparkSession.conf.set("spark.cowstate.backend", "rocksdb")
        try:
            return plan(df)
        finally:
            df.sparkSession.conf.unset("spark.cowstate.backend")

    return planned


def _row_api(processor: Any, time_mode: str = "None") -> Plan:
    def plan(df: DataFrame) -> DataFrame:
        return df.groupBy("key").transformWithState(processor, OUTPUT, "update", time_mode)

    return plan


def _pandas_api(df: DataFrame) -> DataFrame:
    grouped = df.groupBy("key")
    return grouped.transformWithStateInPandas(CountRowsOfFrames(), OUTPUT, "update", "None")


def _cowstate_broadcast(df: DataFrame) -> DataFrame:
    rules = df.where("substring(key, -2, 2) = '00'")
    return spark_state.transform_with_state(
        df.groupBy("key"), CountByRules(), OUTPUT, "update", "None", broadcast={"rules": rules}
    )


def _by_kind() -> Iterator[tuple[str, Plan]]:
    kinds: Sequence[tuple[str, Any, str]] = (
        ("list", AppendRows(), "None"),
        ("map", CountInMap(), "None"),
        ("ttl", CountForAnHour(), "ProcessingTime"),
        ("timers", CountWithTimers(), "ProcessingTime"),
    )
    for kind, processor, time_mode in kinds:
        yield f"cowstate_{kind}", _cowstate(processor, time_mode)
        yield f"row_api_{kind}", _row_api(processor, time_mode)


PLANS: dict[str, Plan] = {
    "identity": _identity,
    "cowstate": _cowstate(CountRows()),
    "row_api": _row_api(CountRows()),
    "cowstate_rocksdb": _in_rocksdb(_cowstate(CountRows())),
    "cowstate_pandas": _cowstate(
        CountRowsOfFrames(), transform=spark_state.transform_with_state_in_pandas
    ),
    "pandas_api": _pandas_api,
    "cowstate_arrow": _cowstate(
        CountRowsInArrow(), transform=spark_state.transform_with_state_in_arrow
    ),
    "cowstate_broadcast": _cowstate_broadcast,
    **dict(_by_kind()),
}
