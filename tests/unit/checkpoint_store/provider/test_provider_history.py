"""The directories of a query on the provider give the query's versions, states and changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.open_history import history_in
from checkpoint_store.provider.provider_errors import (
    StateChoiceError,
    StoreNotFoundError,
    UnreadableStateError,
)
from checkpoint_store.provider.provider_file_names import ProviderFileName
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_cache import StateCache
from tests.support.operators.counts_operator import CountsOperator
from tests.support.provider.provider_file_bytes import (
    changelog,
    file_bytes,
    schema_json,
    snapshot,
    state_schema,
    unique,
)
from tests.support.provider.scripted_checkpoint import (
    CHANGES,
    NUMBERS,
    PARTITIONS,
    STATES,
    TEXTS,
    State,
    commit,
    directory,
    moved,
    of_all,
    put,
    write_batch,
    write_metadata,
)
from tests.support.tables.table_rows_of import ScriptedTable


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """Make the checkpoint of a query with all batches; partition 1 has a snapshot after batch 1."""
    store = LocalObjectStore(tmp_path)
    write_metadata(store, "default")
    for batch in range(len(CHANGES)):
        write_batch(store, batch)
    put(store, 1, snapshot(2), [*STATES[1].items()])
    return store


def history(store: ObjectStore) -> ProviderHistory:
    return history_in(store)


def reader(store: ObjectStore) -> StateReader:
    return StateReader(history(store))


def state(opened: StateReader, batch: int, key_groups: KeyGroupRange | None = None) -> State:
    rows = opened.read(batch, key_groups).to_pylist()
    content = {row["number"]: row["text"] for row in rows}
    assert len(content) == len(rows)
    return content


def test_a_version_is_a_batch_and_has_its_state(store: ObjectStore) -> None:
    opened = reader(store)
    assert [info.version for info in opened.versions()] == [0, 1, 2, 3]
    for batch, content in enumerate(STATES):
        assert state(opened, batch) == of_all(content)
        assert state(opened, batch, KeyGroupRange(0, 0)) == content
    assert opened.key_names == ("number",)
    assert opened.schema().names == ["number", "text"]


def test_a_version_was_committed_when_spark_wrote_its_entry(store: ObjectStore) -> None:
    infos = {info.name: info.modified or 0 for info in store.list("commits")}
    times = [info.timestamp_ms for info in reader(store).versions()]
    assert times == [int(infos[f"commits/{batch}"] * 1000) for batch in range(4)]


def test_changes_are_what_a_batch_made_of_each_key(store: ObjectStore) -> None:
    rows = reader(store).changes(0, 2, KeyGroupRange(1, 1)).drop_columns(["_commit_timestamp"])
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (102, "b", "delete", 1),
        (101, "a", "update_preimage", 1),
        (101, "aaa", "update_postimage", 1),
        (103, "c", "update_preimage", 2),
        (103, "cc", "update_postimage", 2),
    ]
    assert not reader(store).changes(2).num_rows


@dataclass(frozen=True)
class WatchedStore(LocalObjectStore):
    """A store that notes the state files that are read."""

    read: list[str] = field(default_factory=list)

    def get(self, name: str) -> bytes:
        if name.endswith(".arrow"):
            self.read.append(name)
        return super().get(name)


def changelogs_of(version: int) -> list[str]:
    return [f"{directory(partition)}/{changelog(version)}" for partition in range(PARTITIONS)]


def test_a_follower_reads_only_what_was_added(store: ObjectStore, tmp_path: Path) -> None:
    watched = WatchedStore(tmp_path)
    opened = StateReader(history(watched), StateCache())
    assert opened.changes(0, 1).num_rows == 3 * PARTITIONS
    watched.read.clear()
    assert opened.changes(1, 2).num_rows == 2 * PARTITIONS
    assert sorted(watched.read) == changelogs_of(3)
    # Meanwhile maintenance writes a snapshot with the same rows.
    put(store, 0, snapshot(3), [*STATES[2].items()])
    watched.read.clear()
    assert not opened.changes(2, 3).num_rows
    assert sorted(watched.read) == changelogs_of(4)


def test_a_batch_that_is_not_committed_is_not_there(store: ObjectStore) -> None:
    store.delete(["commits/3"])
    opened = reader(store)
    assert [info.version for info in opened.versions()] == [0, 1, 2]
    with pytest.raises(VersionNotRetainedError, match=r"version 3 .* is not written yet"):
        opened.read(3)


def test_a_version_that_is_deleted_while_it_is_read_is_not_there(store: ObjectStore) -> None:
    opened = history(store)
    handle = opened.at(1).state[0]
    put(store, 0, snapshot(3), [*STATES[2].items()])
    store.delete([f"{directory(0)}/{changelog(version)}" for version in (1, 2)])
    with pytest.raises(VersionNotRetainedError, match="version 1 "):
        list(opened.read(handle, handle.key_groups))


def test_a_commit_that_is_lost_between_others_is_missing(store: ObjectStore) -> None:
    store.delete(["commits/1"])
    with pytest.raises(VersionMissingError, match=r"Restore commits/1 from a backup"):
        reader(store).read(1)
    with pytest.raises(VersionMissingError, match="commits/1"):
        reader(store).changes(0, 2)


def test_a_commit_that_is_deleted_while_it_is_read_is_not_there(store: ObjectStore) -> None:
    opened = history(store)
    handle = opened.at(0).state[1]
    store.delete(["commits/0"])
    with pytest.raises(VersionNotRetainedError, match=r"version 0 .* deleted by retention"):
        list(opened.read(handle, handle.key_groups))


def test_files_replaced_meanwhile_are_read_instead(store: ObjectStore, tmp_path: Path) -> None:
    class Maintained(LocalObjectStore):
        """A store where maintenance replaces changelogs by a snapshot just before a reader's
        read."""

        def get(self, name: str) -> bytes:
            if name.endswith(f"{changelog(1)}") and name.startswith(f"{directory(0)}/"):
                put(store, 0, snapshot(3), [*STATES[2].items()])
                store.delete([f"{directory(0)}/{changelog(version)}" for version in (1, 2)])
            return super().get(name)

    assert state(reader(Maintained(tmp_path)), 2) == of_all(STATES[2])


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_lost_changelog_is_an_error_that_names_it(store: ObjectStore, partition: int) -> None:
    store.delete([f"{directory(partition)}/{name}" for name in (changelog(2), snapshot(2))])
    opened = reader(store)
    assert [info.version for info in opened.versions()] == [0, 1, 2, 3]
    assert state(opened, 0) == of_all(STATES[0])
    start = rf"state/0/{partition}/{2:019}"
    for batch in (2, 3):
        with pytest.raises(
            ObjectMissingError, match=rf"{start}-\*-{unique(2)}-\*\.changelog\.arrow"
        ):
            opened.read(batch)
    with pytest.raises(ObjectMissingError, match=rf"{start}-\*\.changelog\.arrow"):
        opened.read(1)


def test_a_reader_of_a_partition_lists_no_other_one(store: ObjectStore, tmp_path: Path) -> None:
    listed: list[str] = []

    class Listing(LocalObjectStore):
        def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
            listed.append(directory)
            return super().list(directory, prefix)

    opened = reader(Listing(tmp_path))
    listed.clear()
    assert state(opened, 3, KeyGroupRange(1, 1)) == {
        number + 100: text for number, text in STATES[3].items()
    }
    assert listed == ["commits", "state/0/0", "state/0/1"]


def test_the_oldest_batch_counts_as_if_it_had_added_all_it_holds(store: ObjectStore) -> None:
    put(store, 0, snapshot(2), [*STATES[1].items()])
    for partition in range(PARTITIONS):
        store.delete([f"{directory(partition)}/{changelog(version)}" for version in (1, 2)])
    opened = reader(store)
    assert [info.version for info in opened.versions()] == [1, 2, 3]
    assert state(opened, 1) == of_all(STATES[1])
    assert opened.changes(None, 1).num_rows == len(STATES[1]) * PARTITIONS
    with pytest.raises(VersionNotRetainedError):
        opened.changes(0, 1)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "v1", "v1\n{", 'v1\n{"unknown":1}'),
        'v2\n{"stateUniqueIds":{"0":[3]}}',
        'v2\n{"stateUniqueIds":{"1":[["00"]]}}',
    ],
)
def test_a_damaged_commit_is_an_error(store: ObjectStore, entry: str) -> None:
    store.delete(["commits/2"])
    store.put("commits/2", entry.encode())
    opened = reader(store)
    with pytest.raises(CorruptObjectError, match=r"commits/2"):
        opened.read(2)
    assert [info.version for info in opened.versions()] == [0, 1, 2, 3]


def test_a_query_that_went_back_has_other_versions(store: ObjectStore) -> None:
    opened = reader(store)
    assert state(opened, 3) == of_all(STATES[3])
    store.delete(["commits/2", "commits/3"])
    assert opened.info().version == 1
    for partition in range(PARTITIONS):
        put(store, partition, ProviderFileName(3, 9, unique(33), unique(2)), [(7, "again")])
    commit(store, 2)
    assert state(opened, 2) == of_all({1: "aaa", 3: "c", 7: "again"})


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        (None, ObjectMissingError, "_metadata/schema"),
        (b"nonsense", CorruptObjectError, "_metadata/schema"),
        (state_schema(NUMBERS, "[]"), CorruptObjectError, "_metadata/schema"),
        (state_schema(TEXTS, NUMBERS), CorruptObjectError, "not those of .*_metadata/schema"),
        (state_schema(NUMBERS, schema_json("place", "geometry")), UnreadableStateError, "geometry"),
    ],
)
def test_columns_that_are_lost_or_wrong_are_an_error(
    store: ObjectStore, schema: bytes | None, error: type[Exception], message: str
) -> None:
    name = f"{directory(0)}/_metadata/schema"
    store.delete([name])
    if schema is not None:
        store.put(name, schema)
    with pytest.raises(error, match=message):
        reader(store).read(3)


class TestChoices:
    def test_a_side_of_a_join_is_a_store(self, store: ObjectStore) -> None:
        write_metadata_of_join = "left-keyWithIndexToValue"
        store.delete(["metadata", "state/0/_metadata/metadata"])
        write_metadata(store, write_metadata_of_join)
        for partition in range(PARTITIONS):
            name = changelog(1)
            path = f"{directory(partition, write_metadata_of_join)}/{name}"
            store.put(path, file_bytes(name, moved(CHANGES[0], partition)))
        opened = StateReader(history_in(store, ProviderStore(join_side="left")))
        assert state(opened, 0) == of_all(STATES[0])

    def test_a_checkpoint_has_no_states_by_name(self, store: ObjectStore) -> None:
        with pytest.raises(StateChoiceError, match=r"no state 'count'.* Pass state=ProviderStore"):
            history_in(store, "count")

    def test_tables_and_operators_have_no_stores_by_number(self, tmp_path: Path) -> None:
        table, operator = LocalObjectStore(tmp_path / "a"), LocalObjectStore(tmp_path / "b")
        ScriptedTable(table)
        CountsOperator(operator).run_epoch(0, {0: 1})
        for other in (table, operator):
            with pytest.raises(StateChoiceError, match=r"no store 'x' of operator 2.*as state"):
                history_in(other, ProviderStore(2, "x"))

    def test_a_query_without_state_says_where_operators_keep_theirs(self, tmp_path: Path) -> None:
        store = LocalObjectStore(tmp_path)
        commit(store, 0)
        with pytest.raises(StoreNotFoundError, match=r"keeps no state .*spark\.cowstate\.store"):
            history_in(store)

    @pytest.mark.parametrize(
        ("choice", "message"),
        [
            ({"join_side": "middle"}, "'middle'; it must be left or right"),
            ({"join_side": "left", "store_name": "default"}, "leave one of them out"),
        ],
    )
    def test_meaningless_choices_are_refused(self, choice: dict[str, str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ProviderStore(**choice)  # type: ignore[arg-type]
