"""A reader follows a query on the provider across a change of the number of partitions.

The query has two partitions in batches 0 and 1. After batch 1 the query is rescaled, and batch 2
runs with the new number. The partition of a key is the key's remainder.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.open_history import history_in
from checkpoint_store.provider.provider_checkpoint import read_changes, read_state
from checkpoint_store.provider.provider_errors import ChangesNotKnownError
from checkpoint_store.provider.provider_file_names import ProviderFileName, parse_provider_file
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_cache import StateCache
from datasources.options.table_options import parse_reader_options, parse_stream_options
from datasources.reads.asked_columns import asked_columns
from datasources.reads.table_source import TableReader, plan_of
from datasources.streams.table_stream import TableStreamReader
from spark_state.errors import ConfigurationError
from tests.support.provider.provider_file_bytes import (
    Row,
    changelog,
    file_bytes,
    rescaled,
    snapshot,
    unique,
)
from tests.support.provider.scripted_checkpoint import commit, directory, write_metadata

PARTITIONS = "spark.sql.shuffle.partitions"
CHANGES: list[list[Row]] = [
    [(0, "a"), (1, "b"), (2, "c"), (3, "d")],
    [(3, "dd"), (4, "e")],
    [(1, "bb"), (2, None), (5, "f")],
]
STATES: list[dict[int, str]] = [
    {0: "a", 1: "b", 2: "c", 3: "d"},
    {0: "a", 1: "b", 2: "c", 3: "dd", 4: "e"},
    {0: "a", 1: "bb", 3: "dd", 4: "e", 5: "f"},
]


def put(store: ObjectStore, name: ProviderFileName, partition: int, rows: list[Row]) -> None:
    store.put(f"{directory(partition)}/{name}", file_bytes(name, rows))


def run(store: ObjectStore, batch: int, partitions: int, base: str | None = None) -> None:
    plan(store, batch, partitions)
    for partition in range(partitions):
        name = changelog(batch + 1)
        name = name if base is None else replace(name, base=base)
        rows = [row for row in CHANGES[batch] if row[0] % partitions == partition]
        put(store, name, partition, rows)
    commit(store, batch)


def plan(store: ObjectStore, batch: int, partitions: int | None) -> None:
    conf = {} if partitions is None else {PARTITIONS: str(partitions)}
    replace_object(store, f"offsets/{batch}", f"v1\n{json.dumps({'conf': conf})}\n0".encode())


def note(store: ObjectStore, partitions: int) -> None:
    """Write Spark's metadata of the operator with another number of partitions."""
    name = "state/0/_metadata/metadata"
    lines = store.get(name).split(b"\n")
    content = json.loads(lines[1])
    content["stateStoreInfo"][0]["numPartitions"] = partitions
    replace_object(store, name, b"v1\n" + json.dumps(content).encode())


def replace_object(store: ObjectStore, name: str, data: bytes) -> None:
    store.delete([name])
    store.put(name, data)


def rescale(
    store: ObjectStore, before: int, after: int, made: str = unique(2), number: int = 0x100
) -> None:
    """Write the files of the new partitions after batch 1, which do not count yet. `made`: the
    unique of the files before."""
    for partition in range(after):
        base = made if partition < before else "0"
        rows: list[Row] = [row for row in STATES[1].items() if row[0] % after == partition]
        put(store, rescaled(2, before, after, base, number=number), partition, rows)


def take_effect(store: ObjectStore, after: int) -> None:
    """Rescale the query after batch 1 from two partitions to `after`."""
    rescale(store, 2, after)
    plan(store, 1, after)
    note(store, after)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = LocalObjectStore(tmp_path)
    write_metadata(store, "default")
    run(store, 0, 2)
    run(store, 1, 2)
    return store


@pytest.fixture(params=[3, 1], ids=["grown", "shrunk"])
def rescaled_store(store: ObjectStore, request: pytest.FixtureRequest) -> ObjectStore:
    take_effect(store, request.param)
    run(store, 2, request.param, base=unique(0x102))
    return store


def content(rows: list[dict[str, Any]]) -> dict[int, str]:
    states = {row["number"]: row["text"] for row in rows}
    assert len(states) == len(rows), "a key is there twice"
    return states


def reader(store: ObjectStore, memory: StateCache | None = None) -> StateReader:
    history = history_in(store)
    return StateReader(history) if memory is None else StateReader(history, memory)


def read(store: ObjectStore, batch: int) -> dict[int, str]:
    rows = read_state(store, batch).to_pylist()
    return content([{**row["key"], **row["value"]} for row in rows])


def kinds(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return sorted((row["_commit_version"], row["_change_type"], row["number"]) for row in rows)


FEED = [
    (1, "insert", 4),
    (1, "update_postimage", 3),
    (1, "update_preimage", 3),
    (2, "delete", 2),
    (2, "insert", 5),
    (2, "update_postimage", 1),
    (2, "update_preimage", 1),
]


class TestAcrossARescale:
    def test_every_version_has_its_state(self, rescaled_store: ObjectStore) -> None:
        opened = reader(rescaled_store)
        for batch, expected in enumerate(STATES):
            assert content(opened.read(batch).to_pylist()) == expected
            assert read(rescaled_store, batch) == expected

    def test_a_change_feed_goes_on_across_it(self, rescaled_store: ObjectStore) -> None:
        assert kinds(reader(rescaled_store).changes(0, 2).to_pylist()) == FEED

    @pytest.mark.parametrize("remembers", [False, True])
    def test_readers_share_out_changes(self, rescaled_store: ObjectStore, remembers: bool) -> None:
        opened = reader(rescaled_store, StateCache() if remembers else None)
        groups = [KeyGroupRange(number, number) for number in range(3)]
        rows = [row for group in groups for row in opened.changes(0, 2, group).to_pylist()]
        assert kinds(rows) == FEED

    def test_changes_of_a_batch_come_from_its_partitions(self, rescaled_store: ObjectStore) -> None:
        for batch, expected in enumerate(CHANGES):
            rows = read_changes(rescaled_store, batch).to_pylist()
            changed = {row["key"]["number"]: row["value"] for row in rows}
            assert changed == {n: None if t is None else {"text": t} for n, t in expected}

    def test_the_run_of_a_batch_stays_the_same(self, rescaled_store: ObjectStore) -> None:
        history = reader(rescaled_store)._history
        assert isinstance(history, ProviderHistory)
        assert history.attempt_at(1) == unique(2)


def test_files_do_not_count_before_the_offset_log_has_their_number(store: ObjectStore) -> None:
    rescale(store, 2, 3)
    assert read(store, 1) == STATES[1]
    assert content(reader(store).read(1).to_pylist()) == STATES[1]
    assert {f["partition_id"] for f in read_state(store, 1).to_pylist()} == {0, 1}


def test_while_a_rescale_takes_effect_the_next_batch_has_the_number(store: ObjectStore) -> None:
    rescale(store, 2, 3)
    plan(store, 1, None)
    plan(store, 2, 2)
    assert {row["partition_id"] for row in read_state(store, 1).to_pylist()} == {0, 1}
    plan(store, 2, 3)
    assert {row["partition_id"] for row in read_state(store, 1).to_pylist()} == {0, 1, 2}
    assert read(store, 1) == STATES[1]


def test_a_reader_that_was_there_before_follows_a_query_across_it(store: ObjectStore) -> None:
    memory = StateCache()
    opened = reader(store, memory)
    groups = [KeyGroupRange(0, 0), KeyGroupRange(1, 1)]
    for group in groups:
        opened.changes(0, 1, group)
    take_effect(store, 3)
    run(store, 2, 3, base=unique(0x102))
    groups.append(KeyGroupRange(2, 2))
    rows = [row for group in groups for row in opened.changes(1, 2, group).to_pylist()]
    assert kinds(rows) == [change for change in FEED if change[0] == 2]
    assert kinds(opened.changes(1, 2).to_pylist()) == [c for c in FEED if c[0] == 2]
    again = pickle.loads(pickle.dumps(opened._history))
    assert content(StateReader(again).read(2).to_pylist()) == STATES[2]


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("after", [1, 3])
def test_a_reader_that_was_there_before_has_all_rows_before_the_next_batch(
    store: ObjectStore, after: int, has_ids: bool
) -> None:
    if has_ids:
        commit_ids(store, 1, {number: unique(2) for number in range(2)})
    opened = reader(store)
    version = opened._history.at(1)
    take_effect(store, after)
    if has_ids:
        commit_ids(store, 1, {number: unique(0x102) for number in range(after)})
    for handles, rows in ((version.state, len(STATES[1])), (version.changes, len(CHANGES[1]))):
        read = [opened._history.read(handle, handle.key_groups) for handle in handles]
        assert sum(batch.num_rows for batches in read for batch in batches) == rows
    assert content(opened.read().to_pylist()) == STATES[1]
    assert opened._history.at(1).partitions == (after if has_ids else 2)
    assert kinds(opened.changes(0, 1).to_pylist()) == [c for c in FEED if c[0] == 1]
    assert content(reader(store).read().to_pylist()) == STATES[1]


def test_a_read_that_spark_planned_before_a_rescale_is_refused(store: ObjectStore) -> None:
    schema = StructType().add("number", LongType()).add("text", StringType())
    columns = asked_columns(store.url, schema)
    read = TableReader(plan_of(parse_reader_options({"path": store.url}), columns, None))
    (part,) = read.partitions()
    assert content([row for rows in read.read(part) for row in rows.to_pylist()]) == STATES[1]
    take_effect(store, 3)
    with pytest.raises(ConfigurationError, match="got 3 partitions instead of 2 while version 1"):
        list(read.read(part))
    (part,) = read.partitions()
    assert content([row for rows in read.read(part) for row in rows.to_pylist()]) == STATES[1]


@pytest.mark.parametrize("start", [{}, {"startingVersion": "earliest"}])
@pytest.mark.parametrize("number", [1, 3])
def test_a_batch_of_a_stream_that_was_planned_before_a_rescale_is_refused(
    store: ObjectStore, number: int, start: dict[str, str]
) -> None:
    options = parse_stream_options({"path": store.url, **start})
    schema = StructType().add("number", LongType()).add("text", StringType())
    stream = TableStreamReader(options, asked_columns("", schema))
    offset = stream.initialOffset()
    end = stream.latestOffset(offset, ReadAllAvailable())
    planned = stream.partitions(offset, end)
    rows = content_of(stream, planned)
    assert {key for key, _ in rows} == set(STATES[1])
    assert start or dict(rows) == STATES[1]
    take_effect(store, number)
    told = f"got {number} partitions instead of 2 while version 1 .* start the stream again"
    with pytest.raises(ConfigurationError, match=told):
        content_of(stream, planned)
    again = TableStreamReader(options, asked_columns("", schema))
    assert content_of(again, again.partitions(offset, end)) == rows


def content_of(
    stream: TableStreamReader, parts: Sequence[InputPartition]
) -> list[tuple[int, str | None]]:
    batches = [batch for part in parts for batch in stream.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted((row["number"], row["text"]) for row in rows)


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize(("via", "lost"), [(1, ChangesNotKnownError), (3, ObjectMissingError)])
def test_changes_are_kept_through_two_rescales(
    store: ObjectStore, has_ids: bool, via: int, lost: type[Exception]
) -> None:
    rescale(store, 2, via)
    rescale(store, via, 2, unique(0x102), number=0x200)
    if has_ids:
        commit_ids(store, 1, {number: unique(0x202) for number in range(2)})
    changed = {row["key"]["number"] for row in read_changes(store, 1).to_pylist()}
    assert changed == {3, 4}
    assert read(store, 1) == STATES[1]
    assert kinds(reader(store).changes(0, 1).to_pylist()) == [c for c in FEED if c[0] == 1]
    run(store, 2, 2, base=unique(0x202))
    assert kinds(reader(store).changes(0, 2).to_pylist()) == FEED
    store.delete([f"{directory(1)}/{changelog(2)}"])
    with pytest.raises(lost, match="state/0/1"):
        reader(store).changes(0, 2)


def commit_ids(store: ObjectStore, batch: int, ids: Mapping[int, str]) -> None:
    named = json.dumps({"stateUniqueIds": {"0": [[ids[number]] for number in sorted(ids)]}})
    replace_object(store, f"commits/{batch}", f"v2\n{named}".encode())


@pytest.mark.parametrize("partition_2", [unique(0x102), None])
def test_a_rescaled_state_may_have_its_old_id(store: ObjectStore, partition_2: str | None) -> None:
    rescale(store, 2, 3)
    plan(store, 1, 3)
    own = partition_2 is None
    commit_ids(store, 1, {n: unique(0x102 if own or n == 2 else 2) for n in range(3)})
    assert read(store, 1) == STATES[1]
    rows = read_changes(store, 1).to_pylist()
    assert {row["key"]["number"] for row in rows} == {3, 4}


def test_the_offset_log_counts_when_a_killed_rescale_noted_no_number(store: ObjectStore) -> None:
    rescale(store, 2, 1)
    plan(store, 1, 1)
    run(store, 2, 1, base=unique(0x102))
    put(store, replace(snapshot(3), attempt=unique(9)), 0, [*STATES[2].items()])
    store.delete(["commits/0", "commits/1", "offsets/0", "offsets/1"])
    store.delete(
        [info.name for info in store.list(directory(0)) if "/" + "0" * 18 + "2" in info.name]
    )
    assert read(store, 2) == STATES[2]
    opened = reader(store)
    assert content(opened.read().to_pylist()) == STATES[2]
    assert len(opened._history.at(2).state) == 1
    store.delete(["offsets/2"])
    assert len(reader(store)._history.at(2).state) == 2, "only the note is left"


def test_the_number_is_not_known_without_its_entry(store: ObjectStore) -> None:
    rescale(store, 2, 3)
    store.delete(["offsets/1"])
    with pytest.raises(ObjectMissingError, match="offsets/1"):
        read(store, 1)


@pytest.mark.parametrize("text", ["", "v1", "v1\n[]", f'v1\n{{"conf":{{"{PARTITIONS}":"x"}}}}'])
def test_an_entry_that_spark_did_not_write_is_damage(store: ObjectStore, text: str) -> None:
    replace_object(store, "offsets/1", text.encode())
    with pytest.raises(CorruptObjectError, match="offsets/1"):
        QueryPartitions(store).after(1)


def test_names_of_rescaled_files_are_read_and_written() -> None:
    name = rescaled(7, 12, 48, unique(7))
    start = f"{7:019}-{2:010}-{unique(0x107)}-{unique(7)}"
    assert str(name) == f"{start}-{12:010}-{48:010}-{unique(0x100)}.rescaled.arrow"
    assert parse_provider_file(str(name)) == name
    assert (name.kind, name.origin, name.is_whole) == ("rescaled", None, True)
    for right in (12, 48):
        for number in (0, 1 << 31):
            wrong = str(name).replace(f"{right:010}", f"{number:010}")
            assert parse_provider_file(wrong) is None
