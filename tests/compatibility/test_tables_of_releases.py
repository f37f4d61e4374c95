"""Test that tables of earlier releases stay readable. `write_table.py` wrote each table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.state_reader import open_store
from checkpoint_store.states.row_fold import COMMIT_VERSION
from tests.compatibility.write_table import COMPACTED, FIRST_WIDER, PLAIN, SEQUENCES, WIDER
from tests.support.tables.table_rows_of import SEQUENCED, ScriptedTable, Values, by_key, put

FIXTURES = Path(__file__).parent / "tables"
EVENT_TIMES_MS = [0, 0, 1000, 2000, 3000, 4000, 5000, 6000]

each_release = pytest.mark.parametrize("release", sorted(path.name for path in FIXTURES.iterdir()))


def widened(rows: dict[int, Values]) -> dict[int, Values]:
    """Rows of an older version, with null in columns that later versions added."""
    return {key: (*values, *[None] * (3 - len(values))) for key, values in rows.items()}


@each_release
def test_every_version_of_a_table_is_read(release: str) -> None:
    reader = open_store(str(FIXTURES / release / "plain"))
    for version, expected in enumerate(PLAIN):
        rows = reader.read(version)
        assert rows.num_columns == (4 if version >= FIRST_WIDER else 3)
        assert widened(by_key(rows)) == expected
    assert [info.watermark_ms for info in reader.versions()] == EVENT_TIMES_MS


@each_release
def test_the_changes_of_every_version_lead_to_the_next(release: str) -> None:
    reader = open_store(str(FIXTURES / release / "plain"))
    state: dict[int, Values] = {}
    for row in reader.changes(None, len(PLAIN) - 1).to_pylist():
        key, *values = (row[name] for name in ("id", "name", "count", "at"))
        if row["_change_type"] in ("delete", "update_preimage"):
            assert state.pop(key) == tuple(values)
        else:
            state[key] = tuple(values)
    assert state == PLAIN[-1]
    assert reader.changes(None)[COMMIT_VERSION].to_pylist()[-1] == len(PLAIN) - 1


@each_release
def test_a_table_goes_on(release: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / release / "plain", tmp_path / "table")
    table = ScriptedTable(open_object_store(str(tmp_path / "table")))
    assert len(table.table.compactions()) == 1
    assert table.table.compactions()[0].version == COMPACTED
    batch = len(PLAIN)
    table.publish(batch, [table.write(batch, [put(2, "two", 22, None)], WIDER)], WIDER)
    state = by_key(open_store(str(tmp_path / "table")).read())
    assert state == PLAIN[-1] | {2: ("two", 22, None)}


@each_release
def test_late_rows_of_a_sequenced_table_go_on_losing(release: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / release / "sequenced", tmp_path / "table")
    reader = open_store(str(tmp_path / "table"))
    assert [by_key(reader.read(version)) for version in range(3)] == SEQUENCES
    job = ScriptedTable(open_object_store(str(tmp_path / "table")), "job", SEQUENCED, False)
    job.commit(3, put(2, "late", 0, sequence=19), put(1, "new", 9, sequence=11))
    assert by_key(reader.read()) == {1: ("new", 9)}
