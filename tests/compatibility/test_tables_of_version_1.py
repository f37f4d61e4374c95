"""Test that tables of format version 1 stay readable. `write_table.py` wrote the tables."""

from __future__ import annotations

import shutil
from pathlib import Path

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.state_reader import open_store
from checkpoint_store.states.row_fold import COMMIT_VERSION
from checkpoint_store.tables.table_store import TableStore
from tests.compatibility.write_table import (
    COMPACTED,
    FIRST_WIDER,
    LONG,
    PLAIN,
    SEQUENCES,
    WIDER,
    main,
)
from tests.support.stores.stored_forms import forms_in
from tests.support.tables.table_rows_of import (
    MAX_PARALLELISM,
    SEQUENCED,
    ScriptedTable,
    Values,
    by_key,
    put,
)

FIXTURES = Path(__file__).parent / "version_1"
EVENT_TIMES_MS = [0, 0, 1000, 2000, 3000, 4000, 5000, 6000]


def widened(rows: dict[int, Values]) -> dict[int, Values]:
    """Rows of an older version, with null in columns that later versions added."""
    return {key: (*values, *[None] * (3 - len(values))) for key, values in rows.items()}


def test_every_version_of_a_table_is_read() -> None:
    reader = open_store(str(FIXTURES / "plain"))
    for version, expected in enumerate(PLAIN):
        rows = reader.read(version)
        assert rows.num_columns == (4 if version >= FIRST_WIDER else 3)
        assert widened(by_key(rows)) == expected
    assert [info.watermark_ms for info in reader.versions()] == EVENT_TIMES_MS


def test_the_changes_of_every_version_lead_to_the_next() -> None:
    reader = open_store(str(FIXTURES / "plain"))
    state: dict[int, Values] = {}
    for row in reader.changes(None, len(PLAIN) - 1).to_pylist():
        key, *values = (row[name] for name in ("id", "name", "count", "at"))
        if row["_change_type"] in ("delete", "update_preimage"):
            assert state.pop(key) == tuple(values)
        else:
            state[key] = tuple(values)
    assert state == PLAIN[-1]
    assert reader.changes(None)[COMMIT_VERSION].to_pylist()[-1] == len(PLAIN) - 1


def test_a_table_goes_on(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "plain", tmp_path / "table")
    table = ScriptedTable(open_object_store(str(tmp_path / "table")))
    assert len(table.table.compactions()) == 1
    assert table.table.compactions()[0].version == COMPACTED
    batch = len(PLAIN)
    table.publish(batch, [table.write(batch, [put(2, "two", 22, None)], WIDER)], WIDER)
    state = by_key(open_store(str(tmp_path / "table")).read())
    assert state == PLAIN[-1] | {2: ("two", 22, None)}


def test_late_rows_of_a_sequenced_table_go_on_losing(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "sequenced", tmp_path / "table")
    reader = open_store(str(tmp_path / "table"))
    assert [by_key(reader.read(version)) for version in range(3)] == SEQUENCES
    job = ScriptedTable(open_object_store(str(tmp_path / "table")), "job", SEQUENCED, False)
    job.commit(3, put(2, "late", 0, sequence=19), put(1, "new", 9, sequence=11))
    assert by_key(reader.read()) == {1: ("new", 9)}


def test_a_file_with_an_index_is_read_whole_and_in_part() -> None:
    objects = open_object_store(str(FIXTURES / "long"))
    assert by_key(open_store(objects.url).read()) == LONG
    (handle,) = TableStore(objects).read_version(0).state
    assert handle.tail is not None
    some = StateFileStore(objects).read(handle, KeyGroupRange(1, 1))
    ids = [id for batch in some for id in batch.column("id").to_pylist()]
    assert sorted(ids) == [id for id in LONG if id % MAX_PARALLELISM == 1]


def test_tables_are_written_in_the_form_of_version_1(tmp_path: Path) -> None:
    main(tmp_path)
    for table in ("plain", "sequenced", "long"):
        assert forms_in(tmp_path / table) == forms_in(FIXTURES / table), table
