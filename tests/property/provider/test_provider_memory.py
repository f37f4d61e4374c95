"""Stores charge the right bytes to the executor, and release all after an abort or a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm, Script, WordValue

pytestmark = pytest.mark.spark

# The values of scripts are longer than their schema says.
UNCHECKED = "stateStore.formatValidation.enabled=false"
ONE_VERSION = "maxBatchesToRetainInMemory=1"
SNAPSHOTS = "stateStore.minDeltasForSnapshot=1 stateStore.coordinatorReportSnapshotUploadLag=false"
NO_PATIENCE = "stateStore.cowstate.lockTimeoutSeconds=1"
FIRST = "1=2:10 2=1:21"
SECOND = "1=2:10 2=1:20 3=2:30"


def filled(*settings_of_the_store: str) -> Script:
    """Build a store of two batches: `FIRST` is the state after the first, `SECOND` after both."""
    return Script().then(
        f"start {UNCHECKED} {' '.join(settings_of_the_store)}",
        *("begin", "put 1 2:10", "put 2 1:21", "commit"),
        *("begin", "put 2 1:20", "put 3 2:30", "commit"),
    )


def charged(script: Script, results: list[str]) -> list[int]:
    lines = zip(script.lines, results, strict=True)
    return [int(result) for line, result in lines if line == "charged"]


def charged_by_others(provider_jvm: ProviderJvm, folder: Path) -> int:
    """The bytes still charged by stores of earlier queries in this JVM."""
    return int(run(provider_jvm, folder, Script().then("charged -> ?"))[0])


def run(provider_jvm: ProviderJvm, folder: Path, script: Script) -> list[str]:
    return script.run_on(provider_jvm.new("ProviderScript", str(folder)))


@pytest.mark.parametrize("end", ["release", "end-task"])
def test_a_state_replayed_for_a_reader_is_charged_until_the_reader_ends(
    provider_jvm: ProviderJvm, tmp_path: Path, end: str
) -> None:
    script = filled(SNAPSHOTS)
    script.then("maintain -> ?", "begin", "put 4 1:40", "commit", "attempt 0", "charged -> ?")
    script.then("replay 2 3", f"reader-entries -> {SECOND} 4=1:40", "charged -> ?", end)
    script.then("charged -> ?")
    before, reading, after = charged(script, run(provider_jvm, tmp_path, script))
    assert reading > before == after


@pytest.mark.parametrize("end", ["release", "end-task"])
def test_a_state_loaded_beside_a_batch_is_charged_until_its_reader_ends(
    provider_jvm: ProviderJvm, tmp_path: Path, end: str
) -> None:
    script = filled(ONE_VERSION)
    script.then("begin", "attempt 0", "charged -> ?", "read 1", f"reader-entries -> {FIRST}")
    script.then("charged -> ?", end, "charged -> ?", f"entries -> {SECOND}")
    before, reading, after = charged(script, run(provider_jvm, tmp_path, script))
    assert reading > before == after


def test_a_state_that_is_given_up_is_charged_until_its_readers_end(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = filled(ONE_VERSION)
    script.then("charged -> ?", "read 2", "begin 1", "charged -> ?", f"reader-entries -> {SECOND}")
    script.then("release", "release", "charged -> ?")
    others = charged_by_others(provider_jvm, tmp_path)
    totals = charged(script, run(provider_jvm, tmp_path, script))
    first, both, last = (total - others for total in totals)
    assert both > max(first, last)
    assert last < both - first // 2


def test_a_reload_needs_no_room_for_the_state_that_it_replaces(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    others_mib = -(-charged_by_others(provider_jvm, tmp_path) // (1 << 20))
    limit = f"stateStore.cowstate.maxMemoryMB={others_mib + 18}"
    script = Script().then(f"start {UNCHECKED} {ONE_VERSION} {limit}")
    # 12 MiB of values.
    script.then("begin", f"put 1-12288 {WordValue(128, 1)}", "commit")
    script.then("begin", f"put 1 {WordValue(1, 2)}", "commit")
    script.then("begin 1", f"get 1 -> {WordValue(128, 1)}", f"put 2 {WordValue(1, 3)}", "commit")
    run(provider_jvm, tmp_path, script)


def test_maintenance_does_not_wait_for_a_batch_which_leaves_it_a_view(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = filled(SNAPSHOTS, "stateStore.cowstate.lockTimeoutSeconds=20")
    script.then("begin", "put 4 1:40", "maintenance-seconds -> ?", "files snapshot -> 0", "commit")
    script.then("watch", "watched-views -> 1", "begin", "put 5 1:50", "maintenance-seconds -> ?")
    script.then("files snapshot -> 1", "watched-views -> 0")
    results = run(provider_jvm, tmp_path, script)
    lines = zip(script.lines, results, strict=True)
    assert max(int(result) for line, result in lines if line == "maintenance-seconds") < 10


@pytest.mark.parametrize(
    "instead",
    [
        ["begin-forced", "commit"],
        ["begin 1"],
        ["begin-forced", "commit", "maintenance-seconds -> ?"],
    ],
    ids=["a forced snapshot", "a reload", "a forced snapshot and maintenance"],
)
def test_a_view_that_nobody_takes_is_released(
    provider_jvm: ProviderJvm, tmp_path: Path, instead: list[str]
) -> None:
    script = filled(SNAPSHOTS, ONE_VERSION, NO_PATIENCE)
    script.then("begin", "put 4 1:40", "maintenance-seconds -> ?", "commit", "watch")
    script.then("watched-views -> 1", *instead, "watched-views -> 0")
    run(provider_jvm, tmp_path, script)


def test_a_store_whose_changes_cannot_be_undone_is_restored_from_files(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = filled(NO_PATIENCE)
    script.then("begin", "put 1 3:11", "break abort", "abort -> error NullPointerException")
    script.then("begin", f"entries -> {SECOND}", "put 1 3:12", "commit", "break undo")
    script.then("begin 2 -> error CANNOT_LOAD_STATE_STORE.UNCATEGORIZED by NullPointerException")
    script.then("begin 2", f"entries -> {SECOND}")
    run(provider_jvm, tmp_path, script)


def test_a_commit_that_fails_says_why_whatever_fails_afterwards(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = filled(NO_PATIENCE)
    script.then("begin", "put 1 3:11", "break files")
    because = "commit failed, suppressed cancel failed"
    script.then(f"commit -> error CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT by {because}", "begin")
    script.then(f"entries -> {SECOND}")
    run(provider_jvm, tmp_path, script)


def test_nothing_stays_charged_of_an_account_closed_under_a_task(provider_jvm: ProviderJvm) -> None:
    assert provider_jvm.new("AccountRace").run() == 0


def test_full_blocks_of_the_heap_are_given_out_again(provider_jvm: ProviderJvm) -> None:
    """The block returned last is reused first; a third block is new. Four blocks are charged."""
    assert provider_jvm.new("HeapBlocks").givenAgain() == "1 0 -1; 4 charged"


@pytest.mark.parametrize("size", [1024, 256 * 1024, 1 << 20])
def test_other_blocks_of_the_heap_are_new_ones(provider_jvm: ProviderJvm, size: int) -> None:
    assert provider_jvm.new("HeapBlocks").othersAreNew(size)


def test_a_table_has_zeros_though_a_used_block_is_long_enough(provider_jvm: ProviderJvm) -> None:
    assert provider_jvm.new("HeapBlocks").sumOfZeros() == 0


def test_the_collector_frees_blocks_that_were_given_back(provider_jvm: ProviderJvm) -> None:
    assert provider_jvm.new("HeapBlocks").isCollected()
