"""Jobs written for Spark's own transformWithState. The code has nothing of cowstate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType

OUTPUT = StructType(
    [
        StructField("key", StringType()),
        StructField("total", LongType()),
        StructField("kinds", LongType()),
        StructField("last", LongType()),
    ]
)


class Sums(StatefulProcessor):
    """Processor that uses a value state, a list state and a map state."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "total bigint")
        self.last = handle.getListState("last", StructType([StructField("value", LongType())]))
        self.kinds = handle.getMapState("kinds", "kind bigint", "times bigint")

    def keep(self, values: list[int]) -> tuple[int, int, int]:
        total = (self.total.get()[0] if self.total.exists() else 0) + sum(values)
        self.total.update((total,))
        for value in values:
            kind = (value % 3,)
            times = self.kinds.getValue(kind)[0] if self.kinds.containsKey(kind) else 0
            self.kinds.updateValue(kind, (times + 1,))
        self.last.put([*self.last.get(), (values[-1],)][-2:])
        return total, len(list(self.kinds.keys())), sum(last for (last,) in self.last.get())

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        total, kinds, last = self.keep(sorted(row.value for row in rows))
        yield Row(key=key[0], total=total, kinds=kinds, last=last)

    def close(self) -> None:
        pass


class SumsOfFrames(Sums):
    """Sums in the pandas API."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        frames = list(rows)
        assert all(list(frame.columns) == ["key", "value"] for frame in frames)
        values = pd.concat(frames)["value"].sort_values().tolist()
        total, kinds, last = self.keep(values)
        yield pd.DataFrame({"key": [key[0]], "total": [total], "kinds": [kinds], "last": [last]})


class LastSeen(StatefulProcessor):
    """Processor in the pandas API that emits a key's number of rows. The timer fires 20 s in event
    time after the key's newest row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.rows = handle.getValueState("rows", "rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        frame = pd.concat(list(rows))
        before = self.rows.get()[0] if self.rows.exists() else 0
        self.rows.update((before + len(frame),))
        for expiry_ms in list(self.handle.listTimers()):
            self.handle.deleteTimer(expiry_ms)
        self.handle.registerTimer(int(frame["value"].max()) + 20_000)
        yield pd.DataFrame({"key": [key[0]], "rows": [-1], "total": [frame["value"].sum()]})

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        total = expiredTimerInfo.getExpiryTimeInMs()
        yield pd.DataFrame({"key": key, "rows": self.rows.get()[0], "total": [total]})
        self.rows.clear()

    def close(self) -> None:
        pass


def last_seen(df: DataFrame) -> DataFrame:
    """The LastSeen job, in event time."""
    return df.groupBy("key").transformWithStateInPandas(
        LastSeen(), "key string, rows bigint, total bigint", "Append", "eventTime"
    )


def by_rows(df: DataFrame) -> DataFrame:
    """The Sums job in the row API."""
    return df.groupBy("key").transformWithState(
        statefulProcessor=Sums(), outputStructType=OUTPUT, outputMode="Update", timeMode="None"
    )


def by_frames(df: DataFrame) -> DataFrame:
    """The Sums job in the pandas API."""
    return df.groupBy("key").transformWithStateInPandas(
        SumsOfFrames(), "key string, total bigint, kinds bigint, last bigint", "append", "none"
    )


cloudpickle.register_pickle_by_value(sys.modules[__name__])
