"""The provider has the error conditions and interfaces used by tools and by Spark itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import START, ProviderJvm, Tasks, WordValue, key_bytes

pytestmark = pytest.mark.spark

BATCH = ["begin", "put 1 1:7", "put 2 2:8", "commit"]
LOAD, COMMIT = "CANNOT_LOAD_STATE_STORE", "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT"
MISSING = f"{LOAD}.CANNOT_READ_STREAMING_STATE_FILE"
UNCATEGORIZED = f"{LOAD}.UNCATEGORIZED"
STATE = Path("0/0")


def cut_the_file(root: Path) -> None:
    (file,) = (root / STATE).glob("*.changelog.arrow")
    file.write_bytes(file.read_bytes()[:-40])


class TestLoading:
    @pytest.mark.parametrize("line", ["begin 2", "get 2 1", "replay 1 2", "changes 1 2"])
    def test_a_version_without_a_file_has_the_condition_of_a_missing_file(
        self, tasks: Tasks, line: str
    ) -> None:
        *_, error, message = tasks(START, *BATCH, line, f"message {line}")
        assert error == f"error {MISSING} by CowStateMissingException"
        assert message.startswith(f"[{MISSING}] The state of version 2 does not exist in file:")
        assert "restart the query from batch 1 or an earlier one" in message

    @pytest.mark.parametrize("line", ["begin 1", "get 1 1", "changes 1 1"])
    def test_a_damaged_file_has_a_condition_of_loading_and_our_message(
        self, tasks: Tasks, tmp_path: Path, line: str
    ) -> None:
        tasks(START, *BATCH)
        cut_the_file(tmp_path)
        *_, error, message = tasks(START, line, f"message {line}")
        assert error == f"error {UNCATEGORIZED} by CowStateCorruptException"
        assert message.startswith(f"[{UNCATEGORIZED}] file:")
        assert "changelog.arrow is damaged: it does not end with ARROW1" in message

    @pytest.mark.parametrize("line", ["begin -1", "get -1 1", "replay 1 -1", "changes 1 -1"])
    def test_a_negative_version_is_answered_as_by_sparks_providers(
        self, tasks: Tasks, line: str
    ) -> None:
        *_, error, message = tasks(START, line, f"message {line}")
        assert error == f"error {LOAD}.UNEXPECTED_VERSION"
        assert "Version cannot be -1 because it is less than 0" in message
        assert "adopt" not in message

    def test_rows_that_do_not_fit_the_schema_keep_sparks_condition(self, tasks: Tasks) -> None:
        """Format validation is on by default, and the rows of scripts fail the validation."""
        validating = "start stateStore.coordinatorReportSnapshotUploadLag=false"
        assert tasks(START, *BATCH, validating, "get 1 1")[-1] == (
            f"error {LOAD}.VALUE_ROW_FORMAT_VALIDATION_FAILURE"
        )

    def test_scans_of_ranges_are_refused_in_sparks_words(self, tasks: Tasks) -> None:
        (message,) = tasks("message start-range-scan")
        assert message.startswith("[STATE_STORE_UNSUPPORTED_OPERATION] Range scan operation")
        assert "CowStateStoreProvider" in message

    def test_a_store_in_use_has_a_condition_too(self, tasks: Tasks) -> None:
        """The task would wait for itself, so the store fails instead."""
        assert tasks(START, "begin 0", "begin 0")[-1] == (
            f"error {UNCATEGORIZED} by CowStateBusyException"
        )

    def test_a_store_in_use_by_another_task_is_waited_for(self, provider_jvm: ProviderJvm) -> None:
        assert provider_jvm.new("StoreLockScript", 60).run(300) == "acquired"
        refused = provider_jvm.new("StoreLockScript", 1).run(3_000)
        assert refused.startswith("the store is still used by another task after 1 s")
        assert "stateStore.cowstate.lockTimeoutSeconds" in refused


class TestCommitting:
    def test_a_commit_that_fails_has_sparks_condition_and_says_whose_and_why(
        self, tasks: Tasks
    ) -> None:
        lines = [START, *BATCH[:-1], "break files", "message commit"]
        message = tasks(*lines)[-1]
        assert message.startswith(f"[{COMMIT}] Error writing state store files for provider Cow")
        assert "operatorId=0, partitionId=0" in message
        assert message.endswith("commit failed")

    def test_a_batch_is_not_committed_twice(self, tasks: Tasks) -> None:
        *_, again, entries = tasks(START, *BATCH, "message commit", "entries 1")
        assert f"[{COMMIT}]" in again
        assert again.endswith("Cannot commit after already committed or aborted")
        assert entries == "1=1:7 2=2:8"


class TestGettingSeveralKeys:
    def test_values_come_in_the_order_of_the_keys_and_null_for_those_that_are_absent(
        self, tasks: Tasks
    ) -> None:
        asked = ["multi-get 2,5,1,2", "multi-get -", "commit", "multi-get 1 3,2,1"]
        lines = [START, *BATCH[:-1], *asked]
        values, none, _, read = tasks(*lines)[-4:]
        assert values == "2:8 - 1:7 2:8"
        assert none == ""
        assert read == "- 2:8 1:7"

    def test_another_column_family_is_refused_even_for_no_keys(self, tasks: Tasks) -> None:
        error = tasks(START, "begin", "multi-get-of-family other")[-1]
        assert error.startswith("error UNSUPPORTED_FEATURE")


class TestMetrics:
    @pytest.mark.parametrize(("begin", "count"), [("begin", "0"), ("begin-forced", "1")])
    def test_a_forced_snapshot_is_counted(self, tasks: Tasks, begin: str, count: str) -> None:
        lines = [START, begin, "put 1 1:7", "commit", "metric forceSnapshotCount", "files snapshot"]
        assert tasks(*lines)[-2:] == [count, count]

    @pytest.mark.parametrize(("begin", "count"), [("begin", 0), ("begin-forced", 1)])
    def test_maintenance_and_no_batch_puts_a_forced_snapshot_into_an_object_store(
        self, tasks: Tasks, tmp_path: Path, begin: str, count: int
    ) -> None:
        """Maintenance writes the forced snapshot although no snapshot is due; the next batch need
        not wait."""
        (tmp_path / "metadata").write_text('{"id":"query"}')
        start = f"{START} stateStore.cowstate.store={tmp_path / 'store'}"
        batch = [f"{start} stateStore.minDeltasForSnapshot=1000", begin, "put 1 1:7", "commit"]
        assert tasks(*batch, "metric forceSnapshotCount")[-1] == "0"
        assert not [*tmp_path.rglob("*.snapshot.arrow")]
        tasks(*batch, "begin", "write-if-due", "abort")
        assert len([*tmp_path.rglob("*.snapshot.arrow")]) == count

    def test_versions_that_are_held_in_memory_are_counted_and_those_that_are_not(
        self, tasks: Tasks
    ) -> None:
        held, missed = "metric loadedMapCacheHitCount", "metric loadedMapCacheMissCount"
        lines = [START, "begin", held, missed, "put 1 1:7", "commit", "begin", "commit", held]
        assert tasks(*lines) == ["", "", "0", "0", "", "", "", "", "1"]
        assert tasks(START, "begin 2", held, missed)[2:] == ["0", "1"]

    def test_the_size_of_the_newest_version_is_that_of_its_rows(self, tasks: Tasks) -> None:
        size = "metric stateOnCurrentVersionSizeBytes"
        lines = [START, "begin", size, "put 1 1:7", size, "remove 1", size]
        rows = len(key_bytes(1)) + len(WordValue(1, 7).to_bytes())
        assert tasks(*lines)[2::2] == ["0", str(rows), "0"]

    def test_a_snapshot_that_was_passed_over_is_counted_in_the_batch_that_restored(
        self, tasks: Tasks
    ) -> None:
        repaired = "metric numSnapshotsAutoRepaired"
        tasks(START, "begin-forced", "put 1 1:7", "commit", "damage snapshot")
        lines = [START, "begin 1", "entries", repaired, "commit", "begin", repaired]
        assert tasks(*lines)[2:] == ["1=1:7", "1", "", "", "0"]
