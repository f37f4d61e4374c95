"""Directories of files give the state and the changes of each version of a store."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from checkpoint_store.provider.provider_errors import (
    ChangesNotKnownError,
    NotACheckpointError,
    StoreNotFoundError,
    UnreadableStateError,
)
from checkpoint_store.provider.provider_file_names import ProviderFileName
from checkpoint_store.provider.provider_state import PartitionReader, StorePartition
from checkpoint_store.provider.query_partitions import QueryPartitions
from tests.support.provider.provider_file_bytes import (
    Row,
    changelog,
    file_bytes,
    merged,
    schema_json,
    schemas_of,
    snapshot,
    state_schema,
    unique,
)

WHERE = StorePartition()
EMPTY_SCHEMA = '{"type":"struct","fields":[]}'
CHANGES: dict[int, list[Row]] = {
    1: [(1, "a"), (2, "b"), (3, "c")],
    2: [(2, None), (1, "aa"), (1, "aaa")],
    3: [(4, "d"), (4, None), (3, None), (3, "cc")],
    4: [],
}
STATES: dict[int, dict[int, str]] = {
    1: {1: "a", 2: "b", 3: "c"},
    2: {1: "aaa", 3: "c"},
    3: {1: "aaa", 3: "cc"},
    4: {1: "aaa", 3: "cc"},
}


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_object_store(str(tmp_path))
    return open_object_store(f"memory://{tmp_path.name}")


def put(store: ObjectStore, name: ProviderFileName, data: bytes, partition: int = 0) -> None:
    store.put(f"state/0/{partition}/{name}", data)


def fill(store: ObjectStore, partition: int = 0) -> None:
    """Write changelogs of all versions, and snapshots of versions 2 and 3."""
    for version, rows in CHANGES.items():
        put(store, changelog(version), file_bytes(changelog(version), rows), partition)
    for version in (2, 3):
        data = file_bytes(snapshot(version), [*STATES[version].items()])
        put(store, snapshot(version), data, partition)


def replace(store: ObjectStore, name: ProviderFileName, data: bytes | None) -> None:
    path = f"state/0/0/{name}"
    store.delete([path])
    if data is not None:
        store.put(path, data)


def flipped(store: ObjectStore, name: ProviderFileName) -> bytes:
    data = bytearray(store.get(f"state/0/0/{name}"))
    data[-20] ^= 1
    return bytes(data)


def state_table(store: ObjectStore, version: int, where: StorePartition = WHERE) -> pa.Table:
    reader = PartitionReader(store, where, QueryPartitions(store))
    return reader.state_table(reader.state_at(version, None))


def changes_of(store: ObjectStore, version: int) -> pa.Table:
    reader = PartitionReader(store, WHERE, QueryPartitions(store))
    return reader.changes_table(reader.state_at(version, None))


def state(store: ObjectStore, version: int) -> dict[int, str]:
    table = state_table(store, version)
    table.validate(full=True)
    assert table.column_names == ["key", "value", "partition_id"]
    rows = table.to_pylist()
    texts = {row["key"]["number"]: row["value"]["text"] for row in rows}
    assert len(texts) == len(rows)
    return texts


def test_each_version_has_what_its_lineage_leads_to(store: ObjectStore) -> None:
    fill(store)
    assert {version: state(store, version) for version in CHANGES} == STATES


def test_changes_are_those_of_one_version_in_order(store: ObjectStore) -> None:
    fill(store)
    for version, rows in CHANGES.items():
        changes = changes_of(store, version).to_pylist()
        assert [
            (row["change_type"], row["key"]["number"], row["value"] and row["value"]["text"])
            for row in changes
        ] == [("delete" if text is None else "update", number, text) for number, text in rows]


MERGED: list[Row] = [(2, None), (1, "aaa"), (4, None), (3, "cc")]


def test_a_merged_file_stands_for_the_changes_of_several_versions(store: ObjectStore) -> None:
    for version in (1, 4):
        put(store, changelog(version), file_bytes(changelog(version), CHANGES[version]))
    put(store, merged(3, 2), file_bytes(merged(3, 2), MERGED))
    assert {version: state(store, version) for version in (1, 3, 4)} == {
        version: STATES[version] for version in (1, 3, 4)
    }
    with pytest.raises(ChangesNotKnownError, match=r"version 3, .* known from batch 3 on"):
        changes_of(store, 3)


def test_a_damaged_merged_file_is_passed_over_for_the_changelogs_if_they_are_there(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    for version, rows in CHANGES.items():
        put(store, changelog(version), file_bytes(changelog(version), rows))
    name = merged(3, 2)
    put(store, name, file_bytes(name, MERGED))
    replace(store, name, flipped(store, name))
    assert state(store, 4) == STATES[4]
    assert str(name) in caplog.text
    replace(store, changelog(2), None)
    with pytest.raises(ObjectMissingError, match=rf"{2:019}-\*-{unique(2)}") as raised:
        state(store, 4)
    assert str(name) in str(raised.value.__cause__)


def test_a_merged_file_that_says_another_number_of_versions_is_damaged(store: ObjectStore) -> None:
    name = merged(3, 3)
    put(store, name, file_bytes(name, MERGED, {"cowstate.versions": "2"}))
    with pytest.raises(ObjectMissingError) as raised:
        state(store, 3)
    assert "it says versions = 2, its name 3" in str(raised.value.__cause__)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "later format"])
def test_a_damaged_snapshot_is_passed_over(
    store: ObjectStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store)
    for version in (2, 3):
        name = snapshot(version)
        data = {
            "flipped": flipped(store, name),
            "cut": store.get(f"state/0/0/{name}")[:100],
            "empty": b"",
            "later format": file_bytes(name, [], {"cowstate.format": "9"}),
        }[damage]
        replace(store, name, data)
    assert state(store, 4) == STATES[4]
    assert [str(snapshot(version)) in caplog.text for version in (2, 3)] == [True, True]


def test_a_damaged_snapshot_upon_a_missing_changelog_names_both(store: ObjectStore) -> None:
    fill(store)
    for version in (2, 3):
        replace(store, snapshot(version), flipped(store, snapshot(version)))
    replace(store, changelog(2), None)
    with pytest.raises(ObjectMissingError, match=rf"{2:019}-\*-{unique(2)}") as raised:
        state(store, 4)
    assert str(snapshot(3)) in str(raised.value.__cause__)


def test_a_damaged_changelog_is_an_error_that_names_it(store: ObjectStore) -> None:
    fill(store)
    replace(store, changelog(4), flipped(store, changelog(4)))
    with pytest.raises(CorruptObjectError, match=str(changelog(4))):
        state(store, 4)
    with pytest.raises(CorruptObjectError, match=str(changelog(4))):
        changes_of(store, 4)
    assert state(store, 3) == STATES[3]


def test_a_version_without_files_is_missing(store: ObjectStore) -> None:
    fill(store)
    with pytest.raises(ObjectMissingError, match=rf"state/0/0/{5:019}-\*.* of batch 4 is missing"):
        state(store, 5)


def test_changes_of_a_version_that_is_a_snapshot_alone_are_not_known(store: ObjectStore) -> None:
    put(store, snapshot(3), file_bytes(snapshot(3), [(1, "a")]))
    assert state(store, 3) == {1: "a"}
    with pytest.raises(ChangesNotKnownError, match="known of no batch yet"):
        changes_of(store, 3)
    put(store, changelog(4), file_bytes(changelog(4), [(2, "b")]))
    with pytest.raises(ChangesNotKnownError, match="known from batch 3 on"):
        changes_of(store, 3)


def test_the_changes_of_a_version_whose_state_is_lost_are_missing(store: ObjectStore) -> None:
    put(store, merged(4, 2), file_bytes(merged(4, 2), MERGED))
    with pytest.raises(ObjectMissingError, match=rf"{2:019}-\*-{unique(2)}"):
        changes_of(store, 4)


def test_files_of_spark_below_ours_are_refused_with_the_way_out(store: ObjectStore) -> None:
    name = ProviderFileName(8, 1, unique(8), "0000000000000adf")
    put(store, name, file_bytes(name, [(1, "a")]))
    store.put("state/0/0/7.delta", b"x")
    told = r"0/0/7\.delta .*Spark's HDFSBackedStateStoreProvider wrote it.*statestore"
    with pytest.raises(UnreadableStateError, match=told):
        state(store, 8)
    with pytest.raises(UnreadableStateError, match=told):
        changes_of(store, 7)
    assert changes_of(store, 8).num_rows == 1


@pytest.mark.parametrize("name", ["7.zip", "7.changelog", "7_ab-cd.zip", "7_ab_ef.changelog"])
def test_state_of_rocksdb_is_refused_with_the_way_out(store: ObjectStore, name: str) -> None:
    store.put(f"state/0/0/{name}", b"x")
    for version in (6, 7):
        told = rf"{name} .*Spark's RocksDBStateStoreProvider wrote it.*statestore"
        with pytest.raises(UnreadableStateError, match=told):
            state(store, version)
    put(store, snapshot(8), file_bytes(snapshot(8), [(1, "a")]))
    assert state(store, 8) == {1: "a"}
    with pytest.raises(UnreadableStateError):
        state(store, 7)
    with pytest.raises(ObjectMissingError):
        state(store, 9)


def test_files_of_different_schemas_are_refused(store: ObjectStore) -> None:
    fill(store)
    forged = schemas_of(schema_json("text", "long"))
    replace(store, changelog(4), file_bytes(changelog(4), [], forged))
    with pytest.raises(CorruptObjectError, match="its schemas are not those of"):
        state(store, 4)


def test_a_column_may_have_another_name_since(store: ObjectStore) -> None:
    fill(store)
    forged = schemas_of(schema_json("renamed", "string"))
    replace(store, changelog(4), file_bytes(changelog(4), [], forged))
    rows = state_table(store, 4).to_pylist()
    assert {row["value"]["renamed"] for row in rows} == {"aaa", "cc"}


def test_a_row_of_another_schema_is_an_error_that_names_file_and_column(store: ObjectStore) -> None:
    fill(store)
    forged = schemas_of(schema_json("text", "decimal(20,0)"))
    data = file_bytes(changelog(1), [(1, "a text of more bytes than a decimal")], forged)
    replace(store, changelog(1), data)
    with pytest.raises(CorruptObjectError, match=rf"{changelog(1)}.*column value\.text has"):
        state(store, 1)


def test_a_checkpoint_has_the_rows_of_all_its_partitions(store: ObjectStore) -> None:
    partitions = range(11)
    for partition in partitions:
        fill(store, partition)
    store.put("state/0/_metadata/schema/0_x", b"")
    for batch in range(4):
        store.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    store.put("commits/.3.crc", b"")
    assert committed_batches(store) == [0, 1, 2, 3]
    rows = read_state(store, 2).to_pylist()
    assert [*dict.fromkeys(row["partition_id"] for row in rows)] == [*partitions]
    assert len(rows) == 11 * len(STATES[3])
    assert read_changes(store, 0).num_rows == 33
    with pytest.raises(VersionNotRetainedError, match=r"version 7 .* not written yet; .* 0 to 3"):
        read_state(store, 7)


def committed(store: ObjectStore, batches: int) -> None:
    for batch in range(batches):
        store.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def test_a_missing_operator_or_store_is_told_with_those_that_are_there(store: ObjectStore) -> None:
    fill(store)
    committed(store, 4)
    store.put("state/0/0/_metadata/x", b"")
    store.put("state/0/0/SSTs/x.sst", b"")
    for name in ("right", "left"):
        data = file_bytes(changelog(1), CHANGES[1])
        store.put(f"state/1/0/{name}/{changelog(1)}", data)
    there = r"Its stores are operator 0: default; operator 1: left, right\."
    for operator, name in ((2, "default"), (1, "default"), (0, "left")):
        told = rf"no store '{name}' of operator {operator}\. {there}"
        for read in (read_state, read_changes):
            with pytest.raises(StoreNotFoundError, match=told):
                read(store, 0, operator=operator, store_name=name)
    assert read_state(store, 0, operator=1, store_name="right").num_rows == 3


def test_a_path_without_commits_is_no_checkpoint(store: ObjectStore) -> None:
    fill(store)
    for use in (committed_batches, lambda store: read_state(store, 0)):
        with pytest.raises(NotACheckpointError, match="checkpointLocation"):
            use(store)


def test_a_committed_batch_whose_newest_file_is_gone_is_lost(store: ObjectStore) -> None:
    fill(store)
    committed(store, 5)
    for read in (read_state, read_changes):
        with pytest.raises(ObjectMissingError, match=rf"0/0/{5:019}-\*.*Restart from an earlier"):
            read(store, 4)
    replace(store, changelog(1), None)
    with pytest.raises(VersionNotRetainedError, match="minBatchesToRetain"):
        read_state(store, 0)


def test_a_committed_attempt_without_its_file_is_lost_beside_another(store: ObjectStore) -> None:
    put(store, changelog(1), file_bytes(changelog(1), CHANGES[1]))
    ids = {"stateUniqueIds": {"0": [[unique(9)]]}}
    store.put("commits/0", b"v2\n" + json.dumps(ids).encode())
    with pytest.raises(ObjectMissingError):
        read_state(store, 0)


def test_the_commit_log_says_which_attempt_counts(store: ObjectStore) -> None:
    fill(store)
    zombie = ProviderFileName(1, 9, "f" * 16, "0")
    put(store, zombie, file_bytes(zombie, [(9, "late")]))
    ids = {"stateUniqueIds": {"0": [[unique(1)]]}}
    store.put("commits/0", b"v2\n" + json.dumps(ids).encode())
    assert len(read_state(store, 0)) == 3
    assert state(store, 1) == {9: "late"}


class TestPartitionsThatAreGone:
    """A store that lists only files does not show the directory of a partition without files."""

    def filled(self, store: ObjectStore, partitions: int) -> None:
        for partition in range(partitions):
            fill(store, partition)
        committed(store, 4)

    def describe(
        self,
        store: ObjectStore,
        partitions: int,
        name: str = "stateStoreSave",
        key_schema: str | None = None,
    ) -> None:
        info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
        operator = {"operatorId": 0, "operatorName": name}
        text = json.dumps({"operatorInfo": operator, "stateStoreInfo": [info]})
        store.put("state/0/_metadata/metadata", b"v1\n" + text.encode())
        schemas = state_schema(key_schema or schema_json("number", "long"), EMPTY_SCHEMA)
        store.put("state/0/0/_metadata/schema", schemas)

    @pytest.mark.parametrize("gone", [0, 1, 2])
    def test_spark_wrote_down_how_many_there_are(self, store: ObjectStore, gone: int) -> None:
        self.filled(store, 3)
        self.describe(store, 3)
        assert read_state(store, 3).num_rows == 3 * len(STATES[4])
        store.delete([info.name for info in store.list(f"state/0/{gone}")])
        for read in (read_state, read_changes):
            with pytest.raises(ObjectMissingError, match=rf"state/0/{gone}/{4:019}-"):
                read(store, 3)

    @pytest.mark.parametrize(
        ("name", "key_schema"), [("globalLimit", None), ("stateStoreSave", EMPTY_SCHEMA)]
    )
    def test_an_operator_that_takes_all_rows_at_once_has_one(
        self, store: ObjectStore, name: str, key_schema: str | None
    ) -> None:
        self.filled(store, 1)
        self.describe(store, 3, name, key_schema)
        assert read_state(store, 3).num_rows == len(STATES[4])

    @pytest.mark.parametrize("gone", [0, 1])
    def test_without_that_one_between_others_is_missed(self, store: ObjectStore, gone: int) -> None:
        self.filled(store, 3)
        store.delete([info.name for info in store.list(f"state/0/{gone}")])
        with pytest.raises(ObjectMissingError, match=rf"state/0/{gone}/{4:019}-"):
            read_state(store, 3)

    def test_fewer_than_there_are_is_damage(self, store: ObjectStore) -> None:
        self.filled(store, 3)
        self.describe(store, 2)
        with pytest.raises(CorruptObjectError, match=r"_metadata/metadata .* more partitions"):
            read_state(store, 3)

    @pytest.mark.parametrize("text", ["", "v1", "v1\n{}", 'v1\n{"stateStoreInfo":[]}', "v1\n[1"])
    def test_what_spark_did_not_write_is_damage(self, store: ObjectStore, text: str) -> None:
        self.filled(store, 1)
        store.put("state/0/_metadata/metadata", text.encode())
        with pytest.raises(CorruptObjectError, match="_metadata/metadata"):
            read_state(store, 3)
