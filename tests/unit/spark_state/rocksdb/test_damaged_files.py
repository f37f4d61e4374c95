"""If files under an open database are damaged, no read loses rows, and no upload happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from spark_state.errors import StateHostError
from spark_state.rocksdb.database import (
    Batch,
    ColumnFamily,
    Database,
    DatabaseCheckpoint,
)
from spark_state.rocksdb.database_options import DatabaseMemory

ROWS = [(b"%06d" % number, b"%060d" % (number * number)) for number in range(4000)]
END = b"\xff"


@pytest.fixture
def memory() -> DatabaseMemory:
    memory = DatabaseMemory()
    memory.allow(16 << 20)
    return memory


@pytest.fixture
def database(tmp_path: Path, memory: DatabaseMemory) -> Iterator[Database]:
    database = Database(tmp_path / "database", memory)
    yield database
    database.close()


@pytest.fixture
def family(database: Database) -> ColumnFamily:
    """Make a column family whose only file holds ROWS."""
    family, batch = database.new_column_family(), Batch()
    for key, value in ROWS:
        batch.put(key, value, family.handle)
    database.write(batch)
    family.flush()
    return family


def table_of(folder: Path) -> Path:
    (table,) = folder.rglob("*.sst")
    return table


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


@pytest.fixture
def damaged(tmp_path: Path, family: ColumnFamily, memory: DatabaseMemory) -> ColumnFamily:
    """Damage the middle of the family's file, and switch off the cache."""
    table = table_of(tmp_path)
    flip(table, table.stat().st_size // 3)
    memory.blocks.set_capacity(0)
    return family


def is_damaged(key: bytes, family: ColumnFamily) -> bool:
    try:
        return family.get(key) is None
    except StateHostError:
        return True


READS: dict[str, Callable[[ColumnFamily, bytes], object]] = {
    "get": lambda family, key: family.get(key),
    "get_many": lambda family, key: family.get_many([ROWS[0][0], key]),
    "all rows": lambda family, key: [*family.rows(b"", END)],
    "rows from there": lambda family, key: [*family.rows(key, END)],
    "one row": lambda family, key: [*family.rows(key, key + b"\0")],
    "first": lambda family, key: family.first(key),
    "last": lambda family, key: family.last(key),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_that_meets_damage_is_an_error_and_the_database_has_failed(
    database: Database, damaged: ColumnFamily, read: Callable[[ColumnFamily, bytes], object]
) -> None:
    key = next(key for key, _ in ROWS if is_damaged(key, damaged))
    database._reads.failure = None
    assert not database.has_failed()
    with pytest.raises(StateHostError, match=r"cannot read its files below .*restores the state"):
        read(damaged, key)
    assert database.has_failed()
    with pytest.raises(StateHostError, match="checksum mismatch"):
        database.check_reads()


def test_reads_of_a_whole_file_end_where_the_rows_do(family: ColumnFamily) -> None:
    assert [*family.rows(b"", END)] == ROWS
    assert [*family.rows(ROWS[-1][0], END)] == ROWS[-1:]
    assert [*family.rows(b"zz", END)] == []
    assert (family.first(b"zz"), family.last(b"")) == (None, None)


def test_a_checkpoint_does_not_give_a_part_of_the_rows(
    database: Database, damaged: ColumnFamily
) -> None:
    checkpoint = database.checkpoint()
    with (
        checkpoint.open([damaged.name]) as opened,
        pytest.raises(StateHostError, match="checksum mismatch"),
    ):
        [*opened.rows(damaged.name, b"", END)]
    assert database.has_failed()
    checkpoint.release()


def problem_of(checkpoint: DatabaseCheckpoint) -> str | None:
    """Return the error of a check of all tables, None without an error."""
    try:
        checkpoint.check(checkpoint.tables())
    except StateHostError as error:
        return str(error)
    return None


def test_a_check_finds_damage_wherever_it_is(database: Database, family: ColumnFamily) -> None:
    """Except in the filter of about 10 bits a row: RocksDB ignores a damaged filter and looks for
    the row."""
    checkpoint = database.checkpoint()
    (name,) = checkpoint.tables()
    checkpoint.check([name])
    assert not database.has_failed()
    table = checkpoint.folder / name
    size = table.stat().st_size
    unseen = []
    for at in range(0, size, size // 60):
        flip(table, at)
        database._reads.failure = None
        told = problem_of(checkpoint)
        assert database.has_failed() == (told is not None)
        if told is None:
            unseen.append(at)
        else:
            assert f"these tables are damaged: {name}" in told
        flip(table, at)
    assert len(unseen) * (size // 60) <= 2 * len(ROWS)
    checkpoint.check([name])
    left = {path.name for path in checkpoint.folder.parent.iterdir()}
    assert left == {"db", checkpoint.folder.name}
    checkpoint.release()


@pytest.mark.parametrize("name", ["MANIFEST-*", "CURRENT"])
def test_a_check_finds_damage_of_what_names_the_tables(
    database: Database, family: ColumnFamily, name: str
) -> None:
    checkpoint = database.checkpoint()
    (path,) = checkpoint.folder.glob(name)
    flip(path, path.stat().st_size // 2)
    with pytest.raises(StateHostError, match="cannot read its files"):
        checkpoint.check([])
    checkpoint.release()


def test_a_disk_that_refuses_a_check_is_no_damage(
    database: Database, family: ColumnFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = database.checkpoint()

    def refuse(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(StateHostError, match=r"cannot be checked: No space .*localDirectory"):
        checkpoint.check(checkpoint.tables())
    assert not database.has_failed()
    checkpoint.release()


def test_a_table_that_goes_away_during_a_check_is_no_damage(
    database: Database, family: ColumnFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = database.checkpoint()
    (name,) = checkpoint.tables()
    repair = Rdict.repair

    def while_files_are_deleted(folder: str, options: Options) -> None:
        (Path(folder) / name).unlink()
        repair(folder, options)

    monkeypatch.setattr(Rdict, "repair", while_files_are_deleted)
    with pytest.raises(StateHostError, match=f"cannot be checked: {name} was deleted meanwhile"):
        checkpoint.check([name])
    assert not database.has_failed()
    checkpoint.release()
