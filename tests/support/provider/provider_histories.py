"""Changes of a provider's stores by batch, compared with reads without Spark.

Spark's change feed of a store takes one read for all batches. The state after each batch follows
from the feed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from checkpoint_store import ProviderStore, open_store
from checkpoint_store.state_reader import StateReader
from tests.support.provider.provider_jobs import Batches, Entry, Fields, Options, ProviderRun, text

State = dict[str, str]
Changes = list[tuple[str, str, str]]
Place = tuple[int, str]
"""The partition of a key, and the key as text."""


def reader_of(run: ProviderRun, options: Options) -> StateReader:
    """The reader of a store, without Spark."""
    store = ProviderStore(
        int(options.get("operatorId", 0)), options.get("storeName"), options.get("joinSide")
    )
    return open_store(str(run.checkpoint), state=store)


def rows_of(frame: DataFrame) -> list[Fields]:
    """The rows of a frame, with values as in Arrow. PySpark 4.2's `toArrow` casts batches to the
    frame's schema. The cast fails for a null value whose fields are not nullable."""
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)
    rows: list[Fields] = pa.Table.from_batches(batches).to_pylist()
    return rows


def change_feed(run: ProviderRun, store: Options) -> list[Fields]:
    """All changes of all batches in order, from Spark's reader."""
    feed = {"readChangeFeed": "true", "changeStartBatchId": "0", **store}
    changes = run.read_state({**feed, "changeEndBatchId": str(run.batches[-1])})
    return rows_of(changes)


@dataclass(frozen=True, slots=True)
class StoreHistory:
    """The net changes of each batch in a store: each key with its new value, or None for a
    delete."""

    changes: dict[int, dict[Place, Fields | None]]

    @classmethod
    def of_store(cls, run: ProviderRun, store: Options) -> StoreHistory:
        return cls.of_feed(run, change_feed(run, store))

    @classmethod
    def of_feed(cls, run: ProviderRun, feed: list[Fields]) -> StoreHistory:
        changes: dict[int, dict[Place, Fields | None]] = {batch: {} for batch in run.batches}
        for row in feed:
            assert row["change_type"] == ("delete" if row["value"] is None else "update")
            changes[row["batch_id"]][row["partition_id"], text(row["key"])] = row["value"]
        return cls(changes)

    def compared(self, compared_value: Callable[[Fields], Fields]) -> StoreHistory:
        """The history with `compared_value` applied to each value."""
        return StoreHistory(
            {
                batch: {
                    place: None if value is None else compared_value(value)
                    for place, value in changes.items()
                }
                for batch, changes in self.changes.items()
            }
        )

    def states(self) -> dict[int, dict[Place, Fields]]:
        """The value of each key after each batch."""
        state: dict[Place, Fields] = {}
        states = {}
        for batch, changes in sorted(self.changes.items()):
            merged = {**state, **changes}
            state = {place: value for place, value in merged.items() if value is not None}
            states[batch] = state
        return states


@dataclass(frozen=True, slots=True)
class History:
    """The outputs of every batch of a run, and the changes of every batch in each store."""

    outputs: dict[int, list[list[str]]]
    stores: list[StoreHistory]

    @classmethod
    def of_run(cls, run: ProviderRun) -> History:
        return cls(run.outputs, [StoreHistory.of_store(run, store) for store in run.job.stores])

    def compared(self, compared_value: Callable[[Fields], Fields]) -> History:
        """The history with `compared_value` applied to each value in a store."""
        return History(self.outputs, [store.compared(compared_value) for store in self.stores])

    def states(self, batches: Sequence[int] | None = None) -> Batches:
        """The content of all stores after `batches`; after every batch if None."""
        entries: Batches = {batch: [] for batch in batches or self.outputs}
        for number, store in enumerate(self.stores):
            states = store.states()
            for batch in entries:
                entries[batch] += [
                    Entry(number, partition, f"{key} {text(value)}")
                    for (partition, key), value in states[batch].items()
                ]
        return {batch: sorted(rows) for batch, rows in entries.items()}

    def shrank(self) -> bool:
        """True if a batch left less state than the batch before."""
        sizes = [len(entries) for entries in self.states().values()]
        return any(later < earlier for earlier, later in itertools.pairwise(sizes))


def assert_history_is(expected: History, run: ProviderRun) -> None:
    """Check the rows and the state of every batch of a run.

    States computed from the change feed must also equal states that Spark reads as a whole.
    """
    assert History.of_run(run) == expected
    batches = [run.batches[1], run.batches[-1]]
    assert run.states(batches) == expected.states(batches)


def assert_readers_agree(run: ProviderRun, history: History) -> None:
    """Check that state and changes of every batch and store, read without Spark, equal Spark's
    reads."""
    batches = [*run.batches]
    for store, history_of_store in zip(run.job.stores, history.stores, strict=True):
        reader = reader_of(run, store)
        assert [info.version for info in reader.versions()] == batches
        states = {batch: texts_by_key(state) for batch, state in history_of_store.states().items()}
        assert {batch: state_at(reader, batch) for batch in batches} == states, store
        assert upserts(reader, batches) == {
            batch: upserts_of(history_of_store.changes[batch]) for batch in batches[1:]
        }
        for before, after in itertools.pairwise(batches):
            assert changes_of(reader, before, after) == difference(states[before], states[after])
    for store in run.job.stores:
        side, _, name = store.get("storeName", "").partition("-")
        if name == "keyWithIndexToValue":
            operator = {key: store[key] for key in store if key != "storeName"}
            assert_join_side_agrees(run, {**operator, "joinSide": side})


def texts_by_key(state: Mapping[Place, Fields]) -> State:
    texts = {key: text(value) for (_, key), value in state.items()}
    assert len(texts) == len(state)
    return texts


def upserts_of(changes: Mapping[Place, Fields | None]) -> Changes:
    """The net changes of a batch in the form of the reader of upserts."""
    return sorted(
        ("delete", key, "None") if value is None else ("update_postimage", key, text(value))
        for (_, key), value in changes.items()
    )


def assert_join_side_agrees(run: ProviderRun, side: Options) -> None:
    """Check the rows of a join side. Spark's reader leaves out a row's index and matched flag,
    which a join keeps for itself."""
    last = run.batches[-1]
    rows = reader_of(run, side).read(last).drop_columns(["index", "matched"])
    assert sorted(map(text, rows.to_pylist())) == sorted(
        text({**row["key"], **row["value"]})
        for row in rows_of(run.read_state({**side, "batchId": str(last)}))
    )


def state_at(reader: StateReader, batch: int) -> State:
    """The values of each key."""
    keys = [*reader.key_names]
    rows = reader.read(batch)
    values = [name for name in rows.column_names if name not in keys]
    key_texts = texts_of(rows, keys)
    assert len({*key_texts}) == len(key_texts)
    return dict(zip(key_texts, texts_of(rows, values), strict=True))


def texts_of(rows: Any, names: Sequence[str]) -> list[str]:
    if not names:
        return [text({})] * rows.num_rows
    return [text(row) for row in rows.select(names).to_pylist()]


def changes_of(reader: StateReader, start: int, end: int) -> Changes:
    """The kind of each change between two batches, with key and values."""
    return sorted(_changes(reader, start, end, preimages=True))


def upserts(reader: StateReader, batches: Sequence[int]) -> dict[int, Changes]:
    """The net changes of each batch after the first batch, without preimages."""
    return {
        after: sorted(
            (kind, key, "None" if kind == "delete" else values)
            for kind, key, values in _changes(reader, before, after, preimages=False)
        )
        for before, after in itertools.pairwise(batches)
    }


def _changes(reader: StateReader, start: int, end: int, *, preimages: bool) -> Changes:
    rows = reader.changes(start, end, preimages=preimages)
    assert {*rows["_commit_version"].to_pylist()} <= {end}
    keys = [*reader.key_names]
    values = [name for name in rows.column_names if name not in keys and name[:8] != "_commit_"]
    values.remove("_change_type")
    kinds = rows["_change_type"].to_pylist()
    return list(zip(kinds, texts_of(rows, keys), texts_of(rows, values), strict=True))


def difference(before: State, after: State) -> Changes:
    """The changes that turn one state into another."""
    changes = [("delete", key, before[key]) for key in before.keys() - after.keys()]
    changes += [("insert", key, after[key]) for key in after.keys() - before.keys()]
    for key in before.keys() & after.keys():
        if before[key] != after[key]:
            changes += [("update_preimage", key, before[key])]
            changes += [("update_postimage", key, after[key])]
    return sorted(changes)
