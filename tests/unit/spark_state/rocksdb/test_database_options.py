"""Settings of RocksDB are parsed or refused, and reach the options of an open database."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_state.errors import ConfigurationError
from spark_state.rocksdb.database import Batch, Database
from spark_state.rocksdb.database_options import DatabaseMemory
from spark_state.rocksdb.database_settings import COMPRESSIONS, DatabaseSettings
from spark_state.spark.session.operator_configuration import SessionFacts, parse_configuration

FACTS = SessionFacts("local[2]", 2, 2, speculation=False)
PREFIX = "spark.cowstate.rocksdb."


def parsed(**texts: str) -> DatabaseSettings:
    settings = {f"{PREFIX}{key}": text for key, text in texts.items()}
    return parse_configuration({"spark.cowstate.store": "/s", **settings}, FACTS).backend.database


def sections(tmp_path: Path, settings: DatabaseSettings) -> dict[str, str]:
    """Return RocksDB's report of an open database's options: the section of the database, and the
    section of a column family and its tables."""
    memory = DatabaseMemory()
    memory.allow(16 << 20)
    database = Database(tmp_path / "database", memory, settings)
    database.new_column_family()
    newest = max((tmp_path / "database/db").glob("OPTIONS-*"))
    text = newest.read_text()
    database.close()
    of_database = text.partition("[DBOptions]")[2].partition("[")[0]
    return {"database": of_database, "family": text.partition('[CFOptions "1"]')[2]}


def test_defaults_are_those_of_the_settings(tmp_path: Path) -> None:
    assert parsed() == DatabaseSettings()
    written = sections(tmp_path, DatabaseSettings())
    assert "max_open_files=-1\n" in written["database"]
    assert "max_background_jobs=2\n" in written["database"]
    for line in (
        "compression=kZSTD\n",
        f"write_buffer_size={64 << 20}\n",
        f"target_file_size_base={64 << 20}\n",
        "block_size=4096\n",
        "filter_policy=bloomfilter\n",
    ):
        assert line in written["family"]


@pytest.mark.parametrize(
    ("key", "text", "part", "line"),
    [
        ("compression", "lz4", "family", "compression=kLZ4Compression\n"),
        ("compression", "none", "family", "compression=kNoCompression\n"),
        ("writeBufferMB", "3", "family", f"write_buffer_size={3 << 20}\n"),
        ("tableFileMB", "7", "family", f"target_file_size_base={7 << 20}\n"),
        ("blockSizeKB", "16", "family", f"block_size={16 << 10}\n"),
        ("bloomBitsPerKey", "0", "family", "filter_policy=nullptr\n"),
        ("maxOpenFiles", "80", "database", "max_open_files=80\n"),
        ("backgroundJobs", "5", "database", "max_background_jobs=5\n"),
    ],
)
def test_a_setting_reaches_the_database(
    tmp_path: Path, key: str, text: str, part: str, line: str
) -> None:
    assert line in sections(tmp_path, parsed(**{key: text}))[part]


def test_the_filter_of_a_table_has_as_many_bits_as_are_set(tmp_path: Path) -> None:
    keys, sizes = 4000, {}
    for bits in (0, 8, 32):
        database = Database(tmp_path / str(bits), None, parsed(bloomBitsPerKey=str(bits)))
        family, batch = database.new_column_family(), Batch()
        for number in range(keys):
            batch.put(b"%08d" % number, b"", family.handle)
        database.write(batch)
        family.flush()
        (table,) = (tmp_path / str(bits)).rglob("*.sst")
        sizes[bits] = table.stat().st_size
        database.close()
    assert sizes[8] - sizes[0] == pytest.approx(keys, rel=0.2)
    assert sizes[32] - sizes[8] == pytest.approx(3 * keys, rel=0.2)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_rows_are_read_with_each_compression(tmp_path: Path, compression: str) -> None:
    database = Database(tmp_path / "database", None, parsed(compression=compression))
    family, batch = database.new_column_family(), Batch()
    batch.put(b"key", b"value" * 1000, family.handle)
    database.write(batch)
    family.flush()
    checkpoint = database.checkpoint()
    with checkpoint.open([family.name]) as opened:
        assert [*opened.rows(family.name, b"", b"z")] == [(b"key", b"value" * 1000)]
    checkpoint.release()
    database.close()


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("compression", "gzip", "is 'gzip'; allowed are none, snappy, lz4, zstd"),
        ("writeBufferMB", "0", "is '0'; allowed are whole numbers from 1 to 2048"),
        ("tableFileMB", "64MB", "is '64MB'; allowed are whole numbers from 1"),
        ("blockSizeKB", "5000", "is '5000'; allowed are whole numbers from 1 to 4096"),
        ("bloomBitsPerKey", "-1", "is '-1'; allowed are whole numbers from 0 to 64"),
        ("maxOpenFiles", "10", "is '10'; allowed are -1 for all files, and whole numbers from 64"),
        ("maxOpenFiles", "all", "is 'all'; allowed are -1 for all files"),
        ("backgroundJobs", "", "is ''; allowed are whole numbers from 1 to 256"),
        ("writeBuffersMB", "1", "no such setting: .*writeBufferMB"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parsed(**{key: text})
