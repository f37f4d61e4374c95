"""A full local disk is an error and never a wait."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Database

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.process

_BEGIN = """
import random, resource, signal, sys
from pathlib import Path
from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Batch, Database
from spark_state.rocksdb.database_options import DatabaseMemory

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
memory, chance = DatabaseMemory(), random.Random(1)
memory.allow(16 << 20)
database = Database(Path(sys.argv[1]), memory)
family = database.new_column_family()
# No file may be larger, so rows cannot leave the memory.
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
"""

_WRITES = """
try:
    for number in range(100):
        batch = Batch()
        for row in range(20):
            batch.put(b"%d %d" % (number, row), chance.randbytes(100_000), family.handle)
        database.write(batch)
except StateHostError as error:
    print(error)
database.close()
print("closed")
"""

_COPIES = """
copied = 0

def rows():
    global copied
    for number in range(1000):
        yield b"%d" % number, chance.randbytes(100_000)
        copied += 1

try:
    database.copy(rows(), family, lambda: None)
except StateHostError as error:
    print(error)
print(copied < 1000)
database.close()
"""


REFUSED = r"cannot be restored below .* File too large\. If the disk is full"
NOT_OPENED = r"RocksDB failed below .* File too large\. What epochs have made durable"
WELL = ""


@pytest.mark.parametrize(
    ("when", "keys", "attempts"),
    [
        # RocksDB takes no more rows after failing to write the snapshot's rows, so the next epoch
        # restores the state.
        ("moment", "2000", [WELL]),
        ("snapshot", "2000", [WELL, REFUSED, REFUSED]),
        ("part", "20000", []),
        ("restore", "2000", [REFUSED] * 3),
        ("restore", "10", [NOT_OPENED] * 3),
    ],
)
def test_a_full_disk_fails_epochs_until_there_is_space(
    tmp_path: Path, when: str, keys: str, attempts: list[str]
) -> None:
    command = [sys.executable, "-m", "tests.support.stores.full_disk", str(tmp_path), when, keys]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-5_000:]
    said = ended.stdout.splitlines()
    for line, expected in zip(said, [WELL] * 3 + attempts + [WELL] * 4, strict=True):
        if expected == WELL:
            assert line == WELL, said
        else:
            assert re.search(expected, line), said
            assert "spark.cowstate.rocksdb.localDirectory" in line
    if when != "restore":
        assert "a snapshot cannot be taken; changelogs are kept instead" in ended.stderr


@pytest.mark.parametrize(
    ("script", "end"),
    [(_WRITES, "closed"), (_COPIES, "True")],
    ids=["a write", "a copy, before all rows are read"],
)
def test_a_full_disk_fails_what_puts_rows_and_names_the_setting(
    tmp_path: Path, script: str, end: str
) -> None:
    command = [sys.executable, "-c", _BEGIN + script, str(tmp_path / "database")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    said, at_end = ended.stdout.splitlines()
    assert "RocksDB failed below" in said
    assert "spark.cowstate.rocksdb.localDirectory" in said
    assert at_end == end
    assert not (tmp_path / "database").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateHostError, match=r"RocksDB failed below .*localDirectory"):
        Database(tmp_path / "file" / "database")
