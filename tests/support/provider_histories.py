"""What cowstate reads of a provider's checkpoint, against what Spark's statestore reader says."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkpoint_store import ProviderStore, open_store
from checkpoint_store.state_reader import StateReader
from tests.support.provider_jobs import Options, ProviderRun, configured

State = dict[str, str]
Changes = list[tuple[str, str, str]]

JOIN_STORES = [
    {"storeName": f"{side}-{name}"}
    for side in ("left", "right")
    for name in ("keyToNumValues", "keyWithIndexToValue")
]


def stores_of(run: ProviderRun) -> list[dict[str, str]]:
    """The options that name each store of a run's job; all four of a join."""
    stores: list[dict[str, str]] = []
    for options in run.job.stores:
        if "joinSide" not in options:
            stores.append({**options})
        elif options["joinSide"] == "left":
            others = {name: value for name, value in options.items() if name != "joinSide"}
            stores += [{**others, **store} for store in JOIN_STORES]
    return stores


def reader_of(run: ProviderRun, options: Options) -> StateReader:
    """The reader of a store, without Spark."""
    store = ProviderStore(
        int(options.get("operatorId", 0)), options.get("storeName"), options.get("joinSide")
    )
    return open_store(str(run.checkpoint), state=store)


def assert_histories_agree(run: ProviderRun) -> None:
    """State and changes of every batch and store are those that Spark reads."""
    batches = [*run.batches]
    for store in stores_of(run):
        reader = reader_of(run, store)
        assert [info.version for info in reader.versions()] == batches
        states = spark_states(run, store)
        assert {batch: state_at(reader, batch) for batch in batches} == states, store
        assert upserts(reader, batches[0], batches[-1]) == spark_upserts(run, store)
        for before, after in itertools.pairwise(batches):
            assert changes_of(reader, before, after) == difference(states[before], states[after])
    for side in (options for options in run.job.stores if "joinSide" in options):
        assert_join_side_agrees(run, side)


def assert_join_side_agrees(run: ProviderRun, side: Options) -> None:
    """Spark's reader leaves out what a join keeps for itself: the index of a row, and whether it
    was matched."""
    last = run.batches[-1]
    rows = reader_of(run, side).read(last).drop_columns(["index", "matched"])
    assert sorted(map(text, rows.to_pylist())) == sorted(
        text({**row["key"], **row["value"]})
        for row in run.read_state({**side, "batchId": str(last)}).toArrow().to_pylist()
    )


def text(row: Mapping[str, Any]) -> str:
    """The values of a row in order: columns may have one name in Spark, and others here."""
    return repr(tuple(row.values()))


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


def upserts(reader: StateReader, start: int, end: int) -> dict[int, Changes]:
    """What each batch after `start` last did to each key, by batch."""
    by_batch: dict[int, Changes] = defaultdict(list)
    for batch in range(start + 1, end + 1):
        for kind, key, values in _changes(reader, batch - 1, batch, preimages=False):
            by_batch[batch].append((kind, key, "None" if kind == "delete" else values))
    return {batch: sorted(changes) for batch, changes in by_batch.items()}


def _changes(reader: StateReader, start: int, end: int, *, preimages: bool) -> Changes:
    rows = reader.changes(start, end, preimages=preimages)
    assert {*rows["_commit_version"].to_pylist()} <= {end}
    keys = [*reader.key_names]
    values = [name for name in rows.column_names if name not in keys and name[:8] != "_commit_"]
    values.remove("_change_type")
    kinds = rows["_change_type"].to_pylist()
    return list(zip(kinds, texts_of(rows, keys), texts_of(rows, values), strict=True))


def difference(before: State, after: State) -> Changes:
    """What leads from one state to another."""
    changes = [("delete", key, before[key]) for key in before.keys() - after.keys()]
    changes += [("insert", key, after[key]) for key in after.keys() - before.keys()]
    for key in before.keys() & after.keys():
        if before[key] != after[key]:
            changes += [("update_preimage", key, before[key])]
            changes += [("update_postimage", key, after[key])]
    return sorted(changes)


def spark_states(run: ProviderRun, store: Options) -> dict[int, State]:
    """The values of each key after each batch, as Spark's reader says."""
    frames = [
        run.read_state({"batchId": str(batch), **store}).select(
            F.lit(batch).alias("batch"), "key", "value"
        )
        for batch in run.batches
    ]
    states: dict[int, State] = {batch: {} for batch in run.batches}
    # Compiling the union of so many small reads takes longer than they do.
    with configured(run.spark, {"spark.sql.codegen.wholeStage": "false"}):
        rows = reduce(DataFrame.union, frames).toArrow()
    for row in rows.to_pylist():
        states[row["batch"]][text(row["key"])] = text(row["value"])
    return states


def spark_upserts(run: ProviderRun, store: Options) -> dict[int, Changes]:
    """What each batch after the first last did to each key, as Spark's change feed says."""
    batches = run.batches
    feed = {"readChangeFeed": "true", "changeStartBatchId": "1", **store}
    rows = run.read_state({**feed, "changeEndBatchId": str(batches[-1])}).toArrow()
    last: dict[tuple[int, str], tuple[str, str]] = {}
    for row in rows.to_pylist():
        kind = "delete" if row["change_type"] == "delete" else "update_postimage"
        values = "None" if row["value"] is None else text(row["value"])
        last[row["batch_id"], text(row["key"])] = kind, values
    by_batch: dict[int, Changes] = defaultdict(list)
    for (batch, key), (kind, values) in last.items():
        by_batch[batch].append((kind, key, values))
    return {batch: sorted(changes) for batch, changes in by_batch.items()}
