"""ArrowStatefulProcessor does the same as a processor of rows, with many keys in a call.

A test gives a processor of rows and a processor of Arrow the same batches, restarts and failures.
Both must have the same output and the same state in the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state import ArrowStatefulProcessor
from spark_state.errors import ConfigurationError, OutputRowError, StateValueError
from spark_state.testing import ScriptedOperator

pc: Any = pyarrow.compute

ROWS = "key string, value long"
OUTPUT = "key string, n long, total long"
Batch = list[tuple[str, int]]


def declare(processor: Any, handle: Any) -> None:
    """Declare the states of both processors."""
    processor._handle = handle
    processor._totals = handle.getValueState("totals", "n long, total long")
    processor._values = handle.getListState("values", "value long")
    processor._seen = handle.getMapState("seen", "value long", "times long, last long")
    processor._recent = handle.getValueState("recent", "value long", ttlDurationMs=3_000)


class Totals(StatefulProcessor):
    """Uses all kinds of states row by row; each key has a timer that emits the key's state."""

    def init(self, handle: Any) -> None:
        declare(self, handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total = self._totals.get() or (0, 0)
        values = [row.value for row in rows]
        if max(values) > 1_000:
            raise ValueError("a value is too large")
        self._totals.update((n + len(values), total + sum(values)))
        self._values.appendList([(value,) for value in values if value >= 0])
        for value in values:
            before = self._seen.getValue((value,))
            self._seen.updateValue((value,), (before.times + 1 if before else 1, values[-1]))
        if min(values) < 0:
            for state in (self._values, self._recent):
                state.clear()
        elif not self._recent.exists():
            self._recent.update((values[-1],))
        for value in values:
            if value % 7 == 0:
                self._seen.removeKey((value,))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1_500)
        yield Row(key=key[0], n=n + len(values), total=total + sum(values))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        length = sum(1 for _ in self._values.get())
        times = sum(times for times, _ in self._seen.values())
        yield Row(key=f"timer of {key[0]}", n=length, total=times)

    def close(self) -> None:
        pass


class TotalsInArrow(ArrowStatefulProcessor):
    """Does the same as Totals, with many keys in a call."""

    def init(self, handle: Any) -> None:
        declare(self, handle)

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        values = batch.rows["value"].to_numpy()
        keys, starts = batch.keys, batch.starts
        if values.max() > 1_000:
            raise ValueError("a value is too large")
        before = self._totals.get_many(keys)
        after = pa.table(
            {
                "total": pc.add(
                    before.field("total").fill_null(0), np.add.reduceat(values, starts)
                ),
                "n": pc.add(before.field("n").fill_null(0), batch.counts),
            }
        )
        self._totals.put_many(keys, after)
        lists = batch.by_key(batch.rows.select(["value"]))
        kept = [[item for item in of_key if item["value"] >= 0] for of_key in lists.to_pylist()]
        self._values.append_many(keys, pa.array(kept, lists.type))
        self._count_seen(batch, values)
        cleared = np.minimum.reduceat(values, starts) < 0
        self._values.clear_many(keys.filter(cleared))
        self._recent.clear_many(keys.filter(pa.array(cleared)))
        new = ~cleared & ~np.asarray(self._recent.exists_many(keys))
        lasts = values[starts + batch.counts.to_numpy() - 1]
        self._recent.put_many(keys.filter(new), pa.array(lasts[new]))
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        self._handle.registerTimers(keys, np.full(len(keys), now_ms + 1_500))
        yield keys.table.append_column("n", after["n"]).append_column("total", after["total"])

    def _count_seen(self, batch: Any, values: Any) -> None:
        lasts = np.repeat(values[batch.starts + batch.counts.to_numpy() - 1], batch.counts)
        # A value may repeat within a key, so the pairs are counted first.
        pairs = pa.table({"key": batch.key_index, "value": values, "last": lasts})
        counted = pairs.group_by(["key", "value"], use_threads=False).aggregate(
            [("value", "count"), ("last", "last")]
        )
        keys, user_keys = batch.keys.take(counted["key"]), counted["value"]
        before = self._seen.get_many(keys, user_keys).field("times").fill_null(0)
        times = pc.add(before, counted["value_count"].combine_chunks())
        seen = pa.table({"times": times, "last": counted["last_last"]})
        self._seen.put_many(keys, user_keys, seen)
        sevens = values % 7 == 0
        self._seen.remove_many(batch.keys_of_rows().filter(sevens), values[sevens])

    def handleExpiredTimers(self, timers: Any, timerValues: Any) -> Iterator[pa.Table]:
        names = [f"timer of {key}" for (key,) in timers.keys]
        lengths = pc.list_value_length(self._values.get_many(timers.keys)).cast(pa.int64())
        maps = self._seen.items_many(timers.keys).to_pylist()
        times = [sum(value["times"] for _, value in of_key) for of_key in maps]
        yield pa.table({"total": pa.array(times, pa.int64()), "key": names, "n": lengths})


def operator(processor: Any, **changes: Any) -> ScriptedOperator:
    arguments: dict[str, Any] = {
        "rows": ROWS,
        "key": "key",
        "output": OUTPUT,
        "time_mode": "ProcessingTime",
    }
    return ScriptedOperator(processor, **(arguments | changes))


def entries(maps: dict[str, Any]) -> dict[str, dict[int, Any]]:
    """Return the maps keyed by user key, because the store does not keep the order of entries."""
    return {key: {user["value"]: value for user, value in of_key} for key, of_key in maps.items()}


@pytest.mark.long
def test_it_does_what_a_processor_of_rows_does_over_failures_and_restarts() -> None:
    chance = random.Random(7)
    with operator(Totals()) as of_rows, operator(TotalsInArrow()) as in_arrow:
        for step in range(14):
            if step % 5 == 3:
                for each in (of_rows, in_arrow):
                    each.restart(parallelism=1 + step % 4)
            rows = [
                (f"key{chance.randrange(12)}", chance.randrange(-1, 20))
                for _ in range(chance.randrange(30))
            ]
            if step % 5 == 4:
                for each in (of_rows, in_arrow):
                    with pytest.raises(ValueError, match="too large"):
                        each.batch([*rows, ("key1", 5_000)], at=step * 1_000)
            outputs = [each.batch(rows, at=step * 1_000) for each in (of_rows, in_arrow)]
            assert outputs[0] == outputs[1]
            for state in ("totals", "values", "recent"):
                assert of_rows.state(state) == in_arrow.state(state)
            assert entries(of_rows.state("seen")) == entries(in_arrow.state("seen"))
            assert of_rows.timers() == in_arrow.timers()


class Given(ArrowStatefulProcessor):
    """A processor that calls `act` with a value state, a list state and a map state."""

    def __init__(self, act: Callable[[Any, Any], Any]) -> None:
        self._act = act

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long, text string")
        self.items = handle.getListState("items", "n long")
        self.map = handle.getMapState("map", "k string", "n long")

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        output = self._act(self, batch)
        return iter(()) if output is None else output


def run(act: Callable[[Any, Any], Any], *rows: tuple[str, int], **changes: Any) -> list[Row]:
    with operator(Given(act), time_mode="None", **changes) as running:
        return running.batch(rows or [("a", 1), ("a", 2), ("b", 3)])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda p, b: p.value.put_many(b.keys, {"n": [1, 2]}),
            r"state 'value': give a pyarrow Table.*columns n int64, text string, not dict",
        ),
        (
            lambda p, b: p.value.put_many(b.keys, pa.table({"n": [1, 2]})),
            r"state 'value': the columns are n, not n int64, text string",
        ),
        (
            lambda p, b: p.value.put_many(b.keys, pa.table({"n": ["1", "2"], "text": ["", ""]})),
            r"state 'value': column 'n' expects int64, got string",
        ),
        (
            lambda p, b: p.value.put_many(b.keys, pa.table({"n": [1.5, 2], "text": ["", ""]})),
            r"state 'value': column 'n' expects int64, got double: .*1.5",
        ),
        (
            lambda p, b: p.value.put_many(b.keys, pa.table({"n": [1], "text": ["x"]})),
            r"state 'value': 1 values were given for 2 keys",
        ),
        (
            lambda p, b: p.value.put_many(
                b.keys, pa.array([None, {"n": 1, "text": ""}], p.value.get_many(b.keys).type)
            ),
            r"state 'value': 1 of the structs are null; .*clear_many",
        ),
        (
            lambda p, b: p.items.append_many(b.keys, pa.array([1, 2])),
            r"state 'items', an element: give a pyarrow ListArray of structs",
        ),
        (
            lambda p, b: p.value.get_many(b.rows["key"]),
            r"asked with keys of a batch or of timers, such as batch.keys, not with a ChunkedArray",
        ),
        (
            lambda p, b: p.map.put_many(["a", "b"], pa.array(["x", "y"]), pa.array([1, 2])),
            r"asked with keys of a batch or of timers, such as batch.keys, not with a list",
        ),
        (
            lambda p, b: p.map.get_many(b.keys, pa.array(["x"])),
            r"state 'map', a user key: 1 values were given for 2 keys",
        ),
        (
            lambda p, b: p.map.put_many(b.keys, pa.array([1, 2]), pa.array([1, 2])),
            r"state 'map', a user key: column 'k' expects string, got int64",
        ),
    ],
)
def test_what_does_not_fit_a_state_is_refused_and_changes_nothing(act: Any, message: str) -> None:
    def checked(processor: Any, batch: Any) -> Iterator[pa.Table]:
        with pytest.raises(StateValueError, match=message):
            act(processor, batch)
        states = (processor.value, processor.items, processor.map)
        held = [each for state in states for each in state.exists_many(batch.keys).to_pylist()]
        yield pa.table({"key": ["held"], "n": [sum(held)], "total": [0]})

    assert run(checked) == [Row(key="held", n=0, total=0)]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([{"key": "a"}], r"yields pyarrow Tables or RecordBatches, got a dict; if it returns a"),
        ([pa.table({"key": ["a"], "n": [1]})], r"output: the columns are key, n, not key string"),
        (
            [pa.table({"key": ["a"], "n": ["x"], "total": [1]})],
            r"output: column 'n' expects int64, got string",
        ),
    ],
)
def test_output_that_does_not_fit_is_refused(output: Any, message: str) -> None:
    with pytest.raises(OutputRowError, match=message):
        run(lambda processor, batch: iter(output))


def test_output_may_have_its_columns_in_any_order_and_of_narrower_types() -> None:
    output = pa.table({"total": pa.array([1], pa.int8()), "n": [2.0], "key": ["a"]})
    assert run(lambda processor, batch: iter([output])) == [Row(key="a", n=2, total=1)]


def test_no_output_at_all_is_an_error() -> None:
    class ReturnsNone(Given):
        def handleInputBatch(self, batch: Any, timerValues: Any) -> Any:
            return None

    with (
        operator(ReturnsNone(lambda processor, batch: None), time_mode="None") as running,
        pytest.raises(OutputRowError, match=r"handleInputBatch returned None; return an iterator"),
    ):
        running.batch([("a", 1)])


def test_a_batch_has_its_rows_by_key_and_its_keys_once() -> None:
    def act(processor: Any, batch: Any) -> None:
        assert batch.rows.column_names == ["key", "value"]
        assert batch.rows["key"].to_pylist() == ["a", "a", "b", "c", "c"]
        assert list(batch.keys) == [("a",), ("b",), ("c",)]
        assert batch.keys.table.to_pydict() == {"key": ["a", "b", "c"]}
        assert batch.counts.to_pylist() == [2, 1, 2]
        assert batch.starts.tolist() == [0, 2, 3]
        assert batch.key_index.tolist() == [0, 0, 1, 2, 2]
        assert list(batch.keys.filter(pa.array([True, None, True]))) == [("a",), ("c",)]
        lists = batch.by_key(batch.rows.select(["value"])).to_pylist()
        assert [[item["value"] for item in of_key] for of_key in lists] == [[1, 4], [2], [3, 5]]
        with pytest.raises(ValueError, match="1 rows were given for a batch of 5"):
            batch.by_key(pa.table({"x": [1]}))
        with pytest.raises(ValueError, match=r"give a Table .*, not a ChunkedArray"):
            batch.by_key(batch.rows["value"])

    assert run(act, ("a", 1), ("b", 2), ("c", 3), ("a", 4), ("c", 5)) == []


def test_timers_need_a_time_mode_and_whole_numbers() -> None:
    def register(processor: Any, batch: Any) -> None:
        processor.handle.registerTimers(batch.keys, pa.array([1, 2]))

    with pytest.raises(ConfigurationError, match="timer"):
        run(register)

    def wrong(processor: Any, batch: Any) -> None:
        with pytest.raises(StateValueError, match=r"timers: column 'time' expects int64"):
            processor.handle.registerTimers(batch.keys, ["soon", "later"])
        with pytest.raises(StateValueError, match=r"1 values were given for 2 keys"):
            processor.handle.deleteTimers(batch.keys, [1])
        processor.handle.registerTimers(batch.keys, [10**15, 10**15 + 1])
        processor.handle.registerTimers(batch.keys, [10**14, 10**15 + 1])
        times = processor.handle.listTimers(batch.keys)
        assert times.to_pylist() == [[10**14, 10**15], [10**15 + 1]]
        # The two lines from docs/how-to/handle-arrow-batches.md.
        of_times = batch.keys.take(pc.list_parent_indices(times))
        processor.handle.deleteTimers(of_times, pc.list_flatten(times))
        assert processor.handle.listTimers(batch.keys).to_pylist() == [[], []]

    with operator(Given(wrong)) as running:
        running.batch([("a", 1), ("b", 2)], at=0)


def test_a_method_with_the_name_of_the_row_api_is_refused() -> None:
    class Misnamed(TotalsInArrow):
        def handleExpiredTimer(self, timers: Any, timerValues: Any) -> Iterator[pa.Table]:
            return iter(())

    with pytest.raises(ConfigurationError, match="handleExpiredTimer, which nobody would call: in"):
        operator(Misnamed())


def test_a_processor_of_another_api_is_refused() -> None:
    with (
        operator(TotalsInArrow()) as running,
        pytest.raises(ConfigurationError, match=r"derives from ArrowStatefulProcessor"),
    ):
        running.restart(processor=Totals())


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda keys: keys.filter([True]), "the mask has 1 values of bool for 3 keys"),
        (lambda keys: keys.filter([1, 0, 1]), "3 values of int64 for 3 keys: give a boolean"),
        (lambda keys: keys.filter(np.ones(5, bool)), "the mask has 5 values of bool for 3 keys"),
        (lambda keys: keys.take([True, False]), "are no places of 3 keys"),
        (lambda keys: keys.take([0, 3]), "are no places of 3 keys"),
        (lambda keys: keys.take([-1]), "are no places of 3 keys"),
        (lambda keys: keys.take(pa.array([0, None])), "are no places of 3 keys"),
    ],
)
def test_keys_are_chosen_by_a_mask_or_places_of_their_own(choose: Any, message: str) -> None:
    def act(processor: Any, batch: Any) -> None:
        with pytest.raises(ValueError, match=message):
            choose(batch.keys)
        assert list(batch.keys.take(pa.array([2, 0]))) == [("c",), ("a",)]
        assert not list(batch.keys.filter([False] * 3))
        assert not list(batch.keys.take([]))

    assert run(act, ("a", 1), ("b", 2), ("c", 3)) == []


class Counting(ArrowStatefulProcessor):
    """Counts rows by key in all kinds of states; the timers fire in bulk."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")
        self._map = handle.getMapState("map", "k double, l array<long>", "n long")

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        before = self._count.get_many(batch.keys).field("n").fill_null(0)
        self._count.put_many(batch.keys, pc.add(before, batch.counts))
        user_keys = pa.table(
            {"k": [float("nan")] * len(batch.keys), "l": [[1, 2]] * len(batch.keys)}
        )
        held = self._map.get_many(batch.keys, user_keys).field("n").fill_null(0)
        self._map.put_many(batch.keys, user_keys, pc.add(held, 1))
        self._handle.registerTimers(batch.keys, [0] * len(batch.keys))
        return iter(())

    def handleExpiredTimers(self, timers: Any, timerValues: Any) -> Iterator[pa.Table]:
        counts = self._count.get_many(timers.keys).field("n")
        epochs = [of_key[0][1]["n"] for of_key in self._map.items_many(timers.keys).to_pylist()]
        shown = [repr(key) for key in timers.keys]
        yield pa.table({"key": shown, "n": counts, "total": pa.array(epochs, pa.int64())})


def test_keys_of_structs_arrays_and_nulls_are_shown_as_in_the_row_api() -> None:
    rows = [
        ({"a": 1, "b": None}, [1, None], 1),
        (None, None, 2),
        ({"a": 1, "b": None}, [1, None], 3),
        ({"a": None, "b": "x"}, [], 4),
    ]
    with ScriptedOperator(
        Counting(),
        rows="s struct<a: long, b: string>, l array<long>, value long",
        key=["s", "l"],
        output=OUTPUT,
        time_mode="ProcessingTime",
    ) as counting:
        counted = {row.key: (row.n, row.total) for row in counting.batch(rows, at=1)}
        assert counted == {
            "(None, None)": (1, 1),
            "({'a': None, 'b': 'x'}, [])": (1, 1),
            "({'a': 1, 'b': None}, [1, None])": (2, 1),
        }
        counting.restart(parallelism=2)
        again = {row.key: (row.n, row.total) for row in counting.batch(rows, at=2)}
        assert again == {key: (2 * n, 2) for key, (n, _) in counted.items()}


@pytest.mark.long
def test_more_timers_than_a_call_holds_fire_once_each() -> None:
    with operator(Counting()) as counting:
        fired = counting.batch([(f"key{number:05d}", 1) for number in range(11_000)], at=1)
        assert len(fired) == len({row.key for row in fired}) == 11_000
        assert [row.key for row in fired] == sorted(row.key for row in fired)
        assert counting.timers() == {}
        assert counting.batch([("key00001", 1)], at=2) == [Row(key="('key00001',)", n=2, total=2)]
