"""A store too large for full rewrites merges its changelogs and keeps the right state."""

from __future__ import annotations

import random

import pytest

from tests.support.provider.provider_jvm import START, Tasks, WordValue, shown

pytestmark = pytest.mark.spark

KEYS = 6000
# Enough for two merged files, and for one.
BATCHES, ENOUGH = 150, 80
RETAINED = 10
WIDTH = 64
SETTINGS = f"minBatchesToRetain={RETAINED} stateStore.minDeltasForSnapshot=1"
State = dict[int, WordValue]


class Store:
    """A script, and the store's state after each batch, with a snapshot after the first batch."""

    def __init__(self, settings: str = "") -> None:
        self.chance = random.Random(4)
        state = {number: WordValue(20, number) for number in range(KEYS)}
        puts = [f"put {number} {value}" for number, value in state.items()]
        self.lines = [f"{START} {SETTINGS} {settings}", "begin", *puts, "commit", "maintain"]
        self.states: list[State] = [{}, state]
        self.changes: list[dict[int, WordValue | None]] = [{}, {}]

    def batch(self, maintains: bool = True) -> None:
        """Run a batch that changes some keys, removes a key, and adds a key."""
        version = len(self.states)
        state = dict(self.states[-1])
        changed = self.chance.sample(sorted(state), 6)
        puts = {
            number: WordValue(1 + version % 4, version) for number in [*changed[1:], 9000 + version]
        }
        value = next(iter(puts.values()))
        listed = ",".join(map(str, puts))
        self.lines += ["begin", f"remove {changed[0]}", f"put {listed} {value}", "commit"]
        self.lines += ["maintain"] if maintains else []
        del state[changed[0]]
        self.states.append(state | puts)
        self.changes.append({changed[0]: None, **puts})

    def batches(self, count: int, maintains: bool = True) -> None:
        for _ in range(count):
            self.batch(maintains)

    def run(self, tasks: Tasks, *lines: str) -> list[str]:
        """Run the batches and then these lines. Return the results of these lines; no result is an
        error."""
        results = tasks(*self.lines, *lines)
        assert not [result for result in results if result.startswith("error")]
        return results[len(self.lines) :]

    def retained(self) -> range:
        """The versions available for going back."""
        newest = len(self.states) - 1
        return range(newest - RETAINED, newest + 1)

    def shown_changes(self, version: int) -> list[str]:
        """The changes of a version in the form of the script, sorted."""
        changes = self.changes[version].items()
        return sorted(f"{version - 1}:{number}={value or '-'}" for number, value in changes)


def test_every_retained_version_is_there_and_has_its_changes(tasks: Tasks) -> None:
    store = Store()
    store.batches(BATCHES)
    versions = store.retained()
    asked = [f"entries {version}" for version in versions]
    changes = [f"changes {version} {version}" for version in versions[1:]]
    *answers, names = store.run(tasks, store.lines[0], *asked, *changes, "names")
    states, feeds = answers[1 : 1 + len(versions)], answers[1 + len(versions) :]
    assert states == [shown(store.states[version]) for version in versions]
    assert [sorted(feed.split()) for feed in feeds] == [
        store.shown_changes(version) for version in versions[1:]
    ]
    kinds = [name.split(".")[1] for name in names.split()]
    assert kinds.count("merged") == 2
    assert kinds.count("changelog") <= WIDTH + RETAINED


def test_versions_that_are_undone_in_memory_are_not_merged(tasks: Tasks) -> None:
    """A batch that runs again replaces a batch whose changelog exists."""
    store = Store()
    for _ in range(ENOUGH):
        store.batch()
        again = len(store.states) - 2
        store.lines += [f"begin {again}", *store.lines[-4:]]
    newest = len(store.states) - 1
    _, entries = store.run(tasks, store.lines[0], f"entries {newest}")
    assert entries == shown(store.states[newest])


def test_changelogs_are_not_merged_without_memory_for_their_rows(tasks: Tasks) -> None:
    store = Store()
    store.batches(ENOUGH, maintains=False)
    lines = ["fill-memory", "write-if-due", "files merged", "charged"]
    lines += ["empty-memory", "charged", "write-if-due", "files merged", "charged"]
    _, _, merged, _, _, charged, _, later, after = store.run(tasks, *lines)
    assert merged == "0"
    assert int(later) > 0
    assert after == charged


def test_a_damaged_merged_file_is_passed_over_for_its_changelogs(tasks: Tasks) -> None:
    store = Store()
    store.batches(ENOUGH, maintains=False)
    newest = len(store.states) - 1
    lines = ["write-if-due", *["begin", "put 1 1:1", "commit", "write-if-due"]]
    lines += ["files merged", "damage merged", store.lines[0], f"entries {newest}"]
    *_, files, _, _, entries = store.run(tasks, *lines)
    assert int(files) == 1
    assert entries == shown(store.states[newest])


def test_a_merged_file_is_read_before_the_changelogs_that_it_stands_for_are_deleted(
    tasks: Tasks,
) -> None:
    store = Store()
    store.batches(ENOUGH, maintains=False)
    changelogs = ENOUGH + 2
    lines = ["write-if-due", *["begin", "put 1 1:1", "commit", "write-if-due"], "files merged"]
    lines += ["damage merged", "clean", "files changelog"]
    *_, merged, _, _, left = store.run(tasks, *lines)
    assert (int(merged), int(left)) == (1, changelogs)


def test_a_damaged_merged_file_whose_changelogs_are_gone_is_told(tasks: Tasks) -> None:
    store = Store()
    store.batches(ENOUGH)
    newest = len(store.states) - 1
    lines = [*store.lines, "damage merged", store.lines[0], f"message entries {newest}"]
    told = tasks(*lines)[-1]
    assert "whose files are missing" in told
    assert ".merged.arrow is damaged and was passed over" in told


def test_merged_rows_keep_their_checksums(tasks: Tasks) -> None:
    on = "stateStore.rowChecksum.enabled=true stateStore.rowChecksum.readVerificationRatio=1"
    store = Store(on)
    store.batches(ENOUGH)
    newest = len(store.states) - 1
    _, entries = store.run(tasks, store.lines[0], f"entries {newest}")
    assert entries == shown(store.states[newest])
