"""`cowstate compact` leaves fewer files and the same rows, and queries go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from checkpoint_store.state_reader import open_store
from checkpoint_store.tables.table_history import TableHistory
from cowstate.cli.command_line import main

pytestmark = pytest.mark.spark
Rows = list[dict[str, object]]


def upsert(spark: SparkSession, table: Path, start: int, end: int, note: str) -> None:
    rows = spark.range(start, end, numPartitions=2).withColumn("note", F.lit(note))
    write = rows.write.format("cowstate").mode("append").option("keys", "id")
    write.option("autoCompactBytes", "0").save(str(table))


def rows_of(table: Path, version: int | None = None) -> Rows:
    rows = open_store(str(table)).read(version).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def files_of(table: Path) -> int:
    """The number of files that a reader of the newest version applies."""
    history = open_store(str(table))._history
    assert isinstance(history, TableHistory)
    return len(history.at(history.versions()[-1]).state)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    """A table of four versions, with two files each."""
    path = tmp_path / "table"
    for number in range(4):
        upsert(spark, path, number * 50, number * 50 + 100, f"n{number}")
    return path


def test_readers_use_what_it_made_and_see_the_same_rows(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_of(table)
    assert files_of(table) == 8
    assert main(["compact", str(table), "--parts", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["version"], report["filesBefore"], report["filesAfter"]) == (3, 8, 3)
    assert report["bytesBefore"] > report["bytesAfter"] > 0
    assert files_of(table) == 3
    assert rows_of(table) == before
    assert len(before) == 250


def test_the_next_commit_builds_upon_it_and_older_versions_stay(
    spark: SparkSession, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = [rows_of(table, version) for version in range(4)]
    assert main(["compact", str(table)]) == 0
    assert "8 files of" in capsys.readouterr().out
    upsert(spark, table, 0, 10, "late")
    assert files_of(table) == 1 + 2
    newest = {row["id"]: row["note"] for row in rows_of(table)}
    expected = {row["id"]: row["note"] for row in older[3]} | dict.fromkeys(range(10), "late")
    assert newest == expected
    assert [rows_of(table, version) for version in range(4)] == older


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "is neither a table, nor the store of an operator"),
        (["--parts", "0"], "'0' is not a whole number from 1"),
        (["--storage-options", "key=1"], "not a JSON object"),
        (["--storage-options", "[1]"], "not a JSON object"),
        (["--conf", "key"], "'key' is not KEY=VALUE"),
    ],
)
def test_what_it_cannot_do_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    try:
        code: object = main(["compact", str(tmp_path / "nothing"), *arguments])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_file_is_an_error_and_the_table_stays_as_it_was(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = max(table.glob("data/*/*/*.arrow"))
    victim.write_bytes(victim.read_bytes()[:-40])
    assert main(["compact", str(table)]) != 0
    assert "is damaged" in capsys.readouterr().err
    assert not list(table.glob("compactions/*"))
