"""Tables of format version 1 stay readable. This module wrote the tables:

    python -m tests.compatibility.test_tables_of_version_1 FOLDER

`plain`: eight versions with updates, deletes, a column that comes later, files that a commit
folded, and a compaction. The writing tasks report event-time watermarks. `sequenced`: late rows,
and deletes that win over late rows. `PLAIN` and `SEQUENCES` give the content of each version.
`long`: a version with the rows of LONG in one file, which has an index.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.state_reader import open_store
from checkpoint_store.states.row_fold import COMMIT_VERSION
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_store import TableCommit, TableFileWriter, TableStore
from checkpoint_store.tables.table_version import TableCompaction
from tests.support.stores.stored_forms import forms_in
from tests.support.tables.table_rows_of import (
    COLUMNS,
    MAX_PARALLELISM,
    SEQUENCED,
    Row,
    ScriptedTable,
    Values,
    by_key,
    file_table,
    gone,
    merging,
    put,
    schema_json,
)

FIXTURES = Path(__file__).parent / "version_1"
WIDER = schema_json(id="long", name="string", count="integer", at="timestamp")
FIRST_WIDER = 4
FOLDED, COMPACTED = 3, 6
_BATCHES: list[list[Row]] = [
    [put(id, f"name{id}", id) for id in range(8)],
    [put(3, "ä", 30), put(4, None, None)],
    [gone(0), gone(7)],
    [put(0, "back", 1)],
    [put(5, "five", 55, None)],
    [gone(1), put(9, "nine", 9, None)],
    [put(9, "neun", 9, None)],
    [gone(5)],
]
_SEQUENCED: list[list[Row]] = [
    [put(1, "a", 1, sequence=10), put(2, "b", 2, sequence=10)],
    [put(1, "late", 0, sequence=9), gone(2, sequence=20)],
    [put(2, "late", 0, sequence=19), put(1, "c", 3, sequence=10)],
]


def _states(batches: list[list[Row]], width: int) -> list[dict[int, Values]]:
    """The expected state after each batch of plain upserts. Columns that come later are null
    before."""
    state: dict[int, Values] = {}
    states = []
    for rows in batches:
        for row in rows:
            state.pop(row.id, None)
            if row.values is not None:
                state[row.id] = (*row.values, *[None] * (width - len(row.values)))
        states.append(dict(state))
    return states


PLAIN = _states(_BATCHES, 3)
SEQUENCES: list[dict[int, Values]] = [
    {1: ("a", 1), 2: ("b", 2)},
    {1: ("a", 1)},
    {1: ("c", 3)},
]


LONG = {id: ("x" * 550, id) for id in range(6_000)}


def write_plain(folder: Path) -> None:
    """Write the table with all features of tables without a sequence."""
    query = ScriptedTable(open_object_store(str(folder)))
    bounds = MergeBounds(1 << 30, FOLDED)
    for batch, rows in enumerate(_BATCHES):
        columns = WIDER if batch >= FIRST_WIDER else COLUMNS
        commit = TableCommit(
            *(query.writer, f"run-{batch}", batch, columns, (query.write(batch, rows, columns),)),
            merges_schema=True,
            writers=2,
            watermarks_ms={batch % 2: 1000 * batch},
        )
        finish = merging(partial(merge_files, query.table, bounds=bounds))
        version = query.table.commit(commit, finish if batch == FOLDED else None)
        if batch == COMPACTED:
            files = tuple(
                compact_key_groups(query.table, version, groups, part)
                for part, groups in enumerate((KeyGroupRange(0, 1), KeyGroupRange(2, 3)))
            )
            names = tuple(handle.name for handle in version.state)
            query.table.publish_compaction(TableCompaction(version.version, names, files))


def write_sequenced(folder: Path) -> None:
    """Write the table whose rows have a sequence."""
    job = ScriptedTable(open_object_store(str(folder)), "job", SEQUENCED, is_query=False)
    for batch, rows in enumerate(_SEQUENCED):
        table = file_table(rows, sequenced=True)
        file = job.table.write_rows("changelog", table, TableFileWriter("job", batch, 0, 0))
        job.publish(batch, [file])


def write_long(folder: Path) -> None:
    """Write the table with a file that is long enough for an index."""
    ScriptedTable(open_object_store(str(folder))).commit(0, *(put(id, *LONG[id]) for id in LONG))


def main(folder: Path) -> None:
    write_plain(folder / "plain")
    write_sequenced(folder / "sequenced")
    write_long(folder / "long")


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
