"""A local disk that takes no more: an error, and no wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

_FILLS_THE_DISK = """
import random, resource, signal, sys
from pathlib import Path
from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Batch, Database, DatabaseMemory

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
memory, chance = DatabaseMemory(), random.Random(1)
memory.allow(16 << 20)
database = Database(Path(sys.argv[1]), memory)
family = database.new_column_family()
# No file may be larger, so rows cannot leave the memory.
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
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


def test_a_full_disk_fails_a_write_and_names_the_setting(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _FILLS_THE_DISK, str(tmp_path / "database")]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=True)
    said, closed = ended.stdout.splitlines()
    assert "RocksDB failed below" in said
    assert "spark.cowstate.rocksdb.localDirectory" in said
    assert closed == "closed"
    assert not (tmp_path / "database" / "db").exists()
