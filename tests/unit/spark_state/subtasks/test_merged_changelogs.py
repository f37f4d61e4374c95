"""Merged changelogs hold the same changes, and readers and restores see no difference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.operators.epoch_files import AttemptFiles
from checkpoint_store.state_reader import open_store
from spark_state.checkpointing import snapshot_policy
from spark_state.subtasks import changelog_merge
from spark_state.subtasks.epoch_request import BackendSettings
from tests.support.operators.subtasks import Host, OpenHost
from tests.support.operators.watched_files import watch_files
from tests.support.processors.processors import KeepsTotalsAndValues

MANY_KEYS = [f"key {number}" for number in range(20_000)]
KEY_SCHEMA = json.dumps(
    {"fields": [{"name": "key", "type": "string", "nullable": True}], "type": "struct"}
)
MANY = 12
EPOCHS = 60


@pytest.fixture(autouse=True)
def few_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_policy, "MANY_FILES", MANY)


class Expected:
    """The expected total of each key. Runs epochs that change a few keys."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.epochs = 0

    def run(
        self, host: Host, epochs: int, attempts: int = 1, after: Callable[[], Any] = lambda: None
    ) -> list[Any]:
        """Run epochs, and return the results of `after`, called after each. Every epoch has
        `attempts`, and the last attempt counts."""
        results = []
        for _ in range(epochs):
            number = self.epochs
            changed = MANY_KEYS[7 * number % 50 :][:3] if number else MANY_KEYS
            self.epochs += 1
            self.totals.update(dict.fromkeys(changed, number))
            for attempt in range(attempts):
                rows = [(key, number) for key in changed]
                totals = host.epoch(number, rows, attempt=10 * number + attempt + 1)
                assert {key: total for key, (_, total) in totals.items()} == {
                    key: self.totals[key] for key in changed
                }
            host.finish_maintenance()
            results.append(after())
        return results

    def check(self, host: Host) -> None:
        """Check all totals of a host with an epoch that changes nothing."""
        totals = host.epoch(self.epochs, [(key, 0) for key in MANY_KEYS])
        assert {key: total for key, (_, total) in totals.items()} == self.totals
        self.epochs += 1


def chain(host: Host) -> list[int]:
    """Return the number of rows of each file, in order; negative for a snapshot."""
    return [h.rows if h.kind == "changelog" else -h.rows for h in host.handles]


@pytest.mark.parametrize(
    "backend", [BackendSettings(), BackendSettings(kind="rocksdb", incremental=False)]
)
def test_few_changes_of_a_large_state_are_merged_instead_of_a_snapshot(
    open_host: OpenHost, backend: BackendSettings
) -> None:
    host, expected = open_host(backend=backend), Expected()
    longest = max(expected.run(host, EPOCHS, after=lambda: len(chain(host))))
    assert min(chain(host)) > 0, "no snapshot"
    assert longest <= 2 * MANY
    assert chain(host)[0] == len(MANY_KEYS)
    assert max(chain(host)[1:]) > 3, "some are merged"
    assert len(host.handles) < EPOCHS / 3
    expected.check(open_host(run_id="run-2", backend=backend))


def test_an_incremental_database_takes_changes_instead(open_host: OpenHost) -> None:
    backend = BackendSettings(kind="rocksdb")
    host, expected = open_host(backend=backend), Expected()
    expected.run(host, EPOCHS)
    assert {handle.kind for handle in host.handles} == {"database", "changelog"}
    assert all(h.rows <= 3 for h in host.handles if h.kind == "changelog")


def test_every_version_and_its_changes_stay_what_they_were(
    open_host: OpenHost, tmp_path: Path
) -> None:
    host, expected = open_host(key_schema_json=KEY_SCHEMA), Expected()
    states = expected.run(host, EPOCHS, after=lambda: dict(expected.totals))
    reader = open_store(str(tmp_path / "query" / "totals"))
    versions = [info.version for info in reader.versions()]
    for version in versions[:: len(versions) // 6]:
        rows = reader.read(version).to_pylist()
        assert {row["key"]: row["total"] for row in rows} == states[version]
    of_each = dict.fromkeys(versions[1:], 3)
    changed = reader.changes(versions[0], versions[-1], preimages=False).to_pylist()
    assert Counter(row["_commit_version"] for row in changed) == of_each
    changed = reader.changes(versions[0], versions[-1]).to_pylist()
    for kind in ("update_preimage", "update_postimage"):
        of_kind = [row for row in changed if row["_change_type"] == kind]
        assert Counter(row["_commit_version"] for row in of_kind) == of_each
    assert len(changed) == 6 * len(of_each)


def test_an_epoch_that_runs_again_names_the_same(open_host: OpenHost) -> None:
    host, expected = open_host(), Expected()
    expected.run(host, MANY)
    assert max(chain(host)[1:]) == 3
    expected.run(host, 1, attempts=2)
    assert chain(host)[1] > 3
    assert len(chain(host)) == 3
    expected.check(open_host(run_id="run-2"))


def test_each_run_merges_its_own_changelogs(open_host: OpenHost) -> None:
    """Unmerged changelogs of earlier runs make the chain long, until a snapshot is written."""
    expected, had_snapshot = Expected(), []
    for run in range(4):
        host = open_host(run_id=f"run-{run}")
        expected.run(host, MANY + 5)
        had_snapshot.append(min(chain(host)) < 0)
        assert len(host.handles) <= 2 * MANY
    assert had_snapshot == [False, False, True, True]
    expected.check(open_host(run_id="last"))


def test_a_merge_of_many_bytes_is_several(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest changelogs are merged first, and each file is read once."""
    monkeypatch.setattr(snapshot_policy, "MERGED_BYTES", 12_000)
    monkeypatch.setattr(snapshot_policy, "_LEAST_MERGED", 2)
    read: Counter[str] = Counter()
    read_states = StateFileStore.read_each

    def counting(store: Any, handles: Any, key_groups: Any) -> Any:
        read.update(handle.name for handle in handles)
        return read_states(store, handles, key_groups)

    host, expected = open_host(), Expected()
    with monkeypatch.context() as patch:
        patch.setattr(StateFileStore, "read_each", counting)
        expected.run(host, MANY + 6)
    assert chain(host)[1:4] == [12, 12, 3]
    assert set(read.values()) == {1}
    expected.check(open_host(run_id="run-2"))


def test_changelogs_too_long_to_be_merged_make_a_snapshot_due(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_policy, "MERGED_BYTES", 1_000)
    host, expected = open_host(), Expected()
    longest = max(expected.run(host, 2 * MANY, after=lambda: len(chain(host))))
    assert longest == MANY
    assert chain(host)[0] < 0


def test_a_merge_that_fails_makes_a_snapshot_due(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host, expected = open_host(), Expected()

    def refuse(*_: Any) -> Any:
        raise OSError(5, "the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(changelog_merge, "merged_changes", refuse)
        expected.run(host, MANY + 1)
        assert host.report is not None
        assert host.report.failed_snapshots == 1
        expected.run(host, 4)
        assert host.report.failed_snapshots == 0
    assert "merging changelogs failed; changelogs are kept instead" in caplog.text
    assert "the disk is broken" in caplog.text
    assert chain(host)[0] < 0
    expected.run(host, 2 * MANY)
    assert max(chain(host)[1:]) > 3, "merges go on after the snapshot"
    expected.check(open_host(run_id="run-2"))


def test_a_snapshot_that_fails_after_a_merge_is_tried_again_itself(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another merge would only fail again."""
    host, expected, tried = open_host(), Expected(), []

    def refuse_merge(*_: Any) -> Any:
        tried.append("merge")
        raise OSError(5, "the disk is broken")

    def refuse_snapshot(_: AttemptFiles) -> None:
        tried.append("snapshot")
        raise OSError(122, "the quota is used up")

    monkeypatch.setattr(changelog_merge, "merged_changes", refuse_merge)
    watch_files(monkeypatch, "snapshot", before=refuse_snapshot)
    expected.run(host, MANY + 12)
    assert tried == ["merge", "snapshot", "snapshot", "snapshot"]


def test_a_damaged_changelog_is_replaced_by_a_snapshot(open_host: OpenHost, tmp_path: Path) -> None:
    host, expected = open_host(), Expected()
    expected.run(host, 5)
    damaged = tmp_path / "query" / "totals" / host.handles[3].name
    damaged.write_bytes(b"damage")
    expected.run(host, MANY)
    assert chain(host)[0] < 0
    expected.check(open_host(run_id="run-2"))


def test_states_of_every_kind_are_merged_and_restored_at_another_parallelism(
    open_host: OpenHost,
) -> None:
    host = open_host(KeepsTotalsAndValues())
    few, many = MANY_KEYS[:5], MANY_KEYS[:6_000]
    expected: dict[str, tuple[int, int]] = {}
    for epoch in range(4 * MANY):
        changed = few if epoch else many
        value = (epoch + 1) % 5
        output = host.epoch(epoch, [(key, value) for key in changed])
        host.finish_maintenance()
        for key in changed:
            rows, total = expected.get(key, (0, 0))
            expected[key] = (rows + 1, total + value) if value else (0, 0)
        assert output == {key: expected[key] for key in changed}
    assert any(rows > 20 for rows in chain(host)[1:])
    assert min(chain(host)) > 0
    again: dict[str, tuple[int, int]] = {}
    for subtask in range(2):
        other = open_host(KeepsTotalsAndValues(), parallelism=2, subtask=subtask, run_id="run-2")
        again |= other.epoch(4 * MANY, [(key, 1) for key in many])
    assert again == {key: (rows + 1, total + 1) for key, (rows, total) in expected.items()}


def test_merged_changelogs_are_deleted_with_the_last_epoch_that_names_them(
    open_host: OpenHost, tmp_path: Path
) -> None:
    host, expected = open_host(min_epochs_to_retain=3), Expected()
    expected.run(host, EPOCHS)
    kept = [*tmp_path.glob("query/totals/epochs/*/changelog-*")]
    assert len(kept) < len(host.handles) + 15, "an epoch's own, and what is not swept yet"
    for handle in host.handles:
        assert (tmp_path / "query" / "totals" / handle.name).exists()
