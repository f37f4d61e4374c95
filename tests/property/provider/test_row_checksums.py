"""Files carry the right row checksums, and checksums find rows that change in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.examples import examples
from tests.support.provider.provider_jvm import (
    ProviderJvm,
    Script,
    WordValue,
    crc32c,
    key_bytes,
    shown,
)

pytestmark = pytest.mark.spark

Row = tuple[int, WordValue | None]
numbers = st.integers(0, 1 << 40)
values = st.builds(WordValue, st.integers(1, 50), st.integers(0, 9))
rows_of_files = st.lists(st.tuples(numbers, st.none() | values), max_size=30)
UNREPORTED = "stateStore.coordinatorReportSnapshotUploadLag=false"
ON = "stateStore.rowChecksum.enabled=true"
EVERY_READ = f"{ON} stateStore.rowChecksum.readVerificationRatio=1"
SNAPSHOTS = f"stateStore.minDeltasForSnapshot=1 {UNREPORTED}"
FOUND = "error STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
FILLED = "1=2:10 2=1:20 3=2:30"
BACKENDS = ("heap", "disk")


@pytest.fixture(params=BACKENDS)
def held(request: pytest.FixtureRequest) -> str:
    """The setting that keeps a store's rows in this place."""
    return f"stateStore.cowstate.backend={request.param}"


def test_a_file_carries_the_checksum_of_each_row(provider_jvm: ProviderJvm) -> None:
    files = provider_jvm.new("StateFileBytes")

    @examples(20)
    @given(rows_of_files)
    @example([])
    @example([(1, None)] * 9)
    def agree(rows: list[Row]) -> None:
        text = "\n".join(f"{number} {value or '-'}" for number, value in rows)
        data = files.writeWithChecksums(text)
        assert files.read(data) == text
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        table.validate(full=True)
        assert table.schema.field("checksum") == pa.field("checksum", pa.int32(), nullable=False)
        assert (table.schema.metadata or {})[b"cowstate.row_checksum"] == b"crc32c"
        assert table["checksum"].to_pylist() == [
            crc32c(key_bytes(number) + (value.to_bytes() if value else b""))
            for number, value in rows
        ]

    agree()


def filled(*settings_of_the_store: str) -> Script:
    """Build a store with three rows, put by two batches."""
    return Script().then(
        f"start {' '.join(settings_of_the_store)}",
        *("begin", "put 1 2:10", "put 2 1:21", "commit"),
        *("begin", "put 2 1:20", "put 3 2:30", "commit"),
    )


def run(provider_jvm: ProviderJvm, folder: Path, script: Script) -> list[str]:
    return script.run_on(provider_jvm.new("ProviderScript", str(folder)))


def test_a_byte_that_changes_in_memory_is_found_by_get_and_by_iterators(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str
) -> None:
    script = filled(held, EVERY_READ)
    script.then("begin", "flip 2", "get 1 -> 2:10", f"get 2 -> {FOUND}", "message get 2 -> ?")
    script.then(f"entries -> {FOUND}", "remove 2", "entries -> 1=2:10 3=2:30")
    message = run(provider_jvm, tmp_path, script)[script.lines.index("message get 2")]
    assert "StateStoreId[ operatorId=0, partitionId=0, storeName=default ]" in message


def test_a_byte_that_changes_in_an_older_version_is_found(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str
) -> None:
    script = filled(held, EVERY_READ)
    script.then("get 1 2 -> 1:21", "flip-old 2", "get 1 1 -> 2:10", f"get 1 2 -> {FOUND}")
    run(provider_jvm, tmp_path, script)
    script = filled(held, EVERY_READ)
    script.then("flip-old 2", f"entries 1 -> {FOUND}")
    run(provider_jvm, tmp_path / "other", script)


def test_after_damage_the_next_attempt_restores_the_state_from_files(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str
) -> None:
    script = filled(held, EVERY_READ)
    script.then("begin", "flip 2", f"get 2 -> {FOUND}", "abort", "begin", "get 2 -> 1:20")
    script.then(f"entries -> {FILLED}")
    run(provider_jvm, tmp_path, script)


def test_a_damaged_row_never_reaches_a_snapshot(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str
) -> None:
    script = filled(held, ON, SNAPSHOTS)
    script.then("flip 2", "maintain -> ?", "files snapshot -> 0", "begin", f"entries -> {FILLED}")
    script.then("commit", "maintain -> ?", "files snapshot -> 1")
    run(provider_jvm, tmp_path, script)


def test_a_restart_reports_the_snapshot_that_it_begins_with(
    provider_jvm: ProviderJvm, tmp_path: Path, spark: SparkSession
) -> None:
    assert spark.streams.active == []
    script = filled("stateStore.minDeltasForSnapshot=1")
    script.then("maintain -> ?", "reported -> 2", "start", "reported", "begin", "reported -> 2")
    run(provider_jvm, tmp_path, script)


def test_maintenance_that_finds_no_snapshot_due_reports_the_newest_version(
    provider_jvm: ProviderJvm, tmp_path: Path, spark: SparkSession
) -> None:
    """Without the report Spark would force snapshots of large states without need."""
    assert spark.streams.active == []
    script = filled("stateStore.minDeltasForSnapshot=10")
    script.then("reported", "maintain -> ?", "files snapshot -> 0", "reported -> 2")
    run(provider_jvm, tmp_path, script)


@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_every_so_many_reads_are_verified(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str, ratio: int
) -> None:
    script = filled(held, ON, f"stateStore.rowChecksum.readVerificationRatio={ratio}")
    script.then("begin", "flip 2")
    for read in range(1, 10):
        is_found = ratio > 0 and read % ratio == 0
        script.add("get 2", FOUND if is_found else "1:21")
    run(provider_jvm, tmp_path, script)


def test_rows_without_checksums_are_not_verified(
    provider_jvm: ProviderJvm, tmp_path: Path, held: str
) -> None:
    script = filled(held, SNAPSHOTS, "stateStore.rowChecksum.readVerificationRatio=1")
    script.then("begin", "flip 2", "get 2 -> 1:21")
    run(provider_jvm, tmp_path, script)


def test_files_with_and_without_checksums_make_up_one_state(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = filled(EVERY_READ, SNAPSHOTS)
    script.then("maintain -> ?")
    expected = {1: WordValue(2, 10), 2: WordValue(1, 20), 3: WordValue(2, 30)}
    for batch in range(12):
        settings_of_the_store = (SNAPSHOTS, f"{EVERY_READ} {SNAPSHOTS}")[batch // 2 % 2]
        held = f"stateStore.cowstate.backend={BACKENDS[batch % 2]}"
        script.then(f"start {held} {settings_of_the_store}", "begin")
        script.then(f"entries -> {shown(expected)}")
        expected[4 + batch % 5] = WordValue(1 + batch % 3, batch)
        script.then(f"put {4 + batch % 5} {expected[4 + batch % 5]}")
        if batch % 4 == 3:
            del expected[4 + batch % 5]
            script.then(f"remove {4 + batch % 5}")
        script.then("commit")
        if batch % 3 == 0:
            script.then("maintain -> ?")
    run(provider_jvm, tmp_path, script)
    schemas = {
        (path.name.split(".")[1], len(pa.ipc.open_file(str(path)).schema))
        for path in tmp_path.rglob("*.arrow")
    }
    assert schemas == {(kind, columns) for kind in ("changelog", "snapshot") for columns in (2, 3)}
