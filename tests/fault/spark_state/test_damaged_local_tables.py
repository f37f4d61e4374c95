"""Damage to sorted tables on the local disk, while a host has them open, never gets into the store.

The epoch that meets the damage fails with a clear error. The next attempt of the epoch has the
state from the store.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.state_reader import open_store
from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Database, DatabaseCheckpoint
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import KEY_SCHEMA, Host, Totals, operator, stored_totals
from tests.support.processors.processors import KeepsTotalsAndValues, RunningTotals

pytestmark = pytest.mark.fault

KEYS = [f"key {number}" for number in range(300)]
ROWS = [(key, 1) for key in KEYS]


def totals_after(epochs: int) -> Totals:
    return dict.fromkeys(KEYS, (epochs, epochs))


class Swallows(KeepsTotalsAndValues):
    """A processor that ignores errors of reading and goes on."""

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:
        given = list(rows)
        try:
            yield from super().handleInputRows(key, iter(given), timer_values)
        except Exception:
            return


class Running:
    """A host with the RocksDB backend, and a snapshot after every second epoch."""

    def __init__(self, folder: Path, maintenance: Maintenance, processor: Any) -> None:
        self.local = folder / "local"
        self.local.mkdir()
        self.store = folder / "query" / "totals"
        self.epoch = self.attempts = 0
        spec = operator(folder, processor, key_schema_json=KEY_SCHEMA)
        self.host = Host(
            replace(
                spec,
                backend=BackendSettings(kind="rocksdb", local_directory=str(self.local)),
                checkpoints=replace(spec.checkpoints, min_epochs_for_snapshot=2),
            )
        ).open(maintenance)

    def run(self, epochs: int = 1) -> None:
        """Run epochs, each with a row for every key."""
        for _ in range(epochs):
            self.attempts += 1
            output = self.host.epoch(self.epoch, ROWS, self.attempts)
            self.host.finish_maintenance()
            self.epoch += 1
            assert output == totals_after(self.epoch)

    def tables(self) -> list[Path]:
        return sorted(self.local.rglob("*.sst"))

    def forget_blocks(self) -> None:
        """Empty the block cache, so that the next read comes from the disk."""
        memory = self.host.backends._memory
        assert memory is not None
        memory.blocks.set_capacity(0)
        memory.blocks.set_capacity(1 << 28)

    def check_store(self, newest: int) -> None:
        """Assert that every epoch in the store has the right state."""
        state = open_store(str(self.store), state="totals")
        for version in state.versions():
            assert stored_totals(self.store, version.version) == totals_after(version.version + 1)
        assert state.versions()[-1].version == newest


def damage(path: Path, chance: random.Random) -> None:
    """Flip bytes in each block of a file."""
    data = bytearray(path.read_bytes())
    for at in range(chance.randrange(64), len(data), 512):
        data[at] ^= 0x20
    with path.open("r+b") as file:
        file.write(data)


@pytest.fixture
def running(
    request: pytest.FixtureRequest, tmp_path: Path, maintenance: Maintenance
) -> Iterator[Running]:
    processor = getattr(request, "param", KeepsTotalsAndValues())
    running = Running(tmp_path, maintenance, processor)
    running.run(4)
    assert running.tables()
    yield running
    running.host.close()
    assert not [*running.local.iterdir()]


def test_an_epoch_that_meets_damage_fails_and_the_next_attempt_has_the_state(
    running: Running,
) -> None:
    for seed in range(3):
        for table in running.tables():
            damage(table, random.Random(seed))
        running.forget_blocks()
        before = running.epoch
        with pytest.raises(StateHostError, match="The next attempt restores the state from the"):
            running.run()
        running.check_store(before - 1)
        running.run(4)
    running.check_store(running.epoch - 1)


@pytest.mark.parametrize("running", [RunningTotals()], indirect=True)
def test_a_table_that_was_damaged_before_its_upload_is_never_in_the_store(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Database.checkpoint
    before = {table.name for table in running.tables()}

    def damaged(database: Database) -> DatabaseCheckpoint:
        taken = checkpoint(database)
        for table in taken.folder.glob("*.sst"):
            if table.name not in before:
                damage(table, random.Random(1))
        return taken

    uploaded = {path.name for path in running.store.rglob("table-*")}
    with monkeypatch.context() as patch:
        patch.setattr(Database, "checkpoint", damaged)
        running.run(4)
    assert re.search(r"these tables are damaged: \w+\.sst", caplog.text)
    assert {path.name for path in running.store.rglob("table-*")} == uploaded
    running.run(4)
    assert {path.name for path in running.store.rglob("table-*")} > uploaded
    running.check_store(running.epoch - 1)


@pytest.mark.parametrize("running", [Swallows()], indirect=True)
def test_a_processor_that_catches_the_error_does_not_make_its_epoch_durable(
    running: Running,
) -> None:
    for table in running.tables():
        damage(table, random.Random(1))
    running.forget_blocks()
    with pytest.raises(StateHostError, match="RocksDB cannot read its files below"):
        running.run()
    running.run(2)
    running.check_store(running.epoch - 1)
