"""A table agrees with a dict that applies the rows of random commits in order.

In between, batches come again, files are folded, compactions are published soon or too late,
columns are added, and old versions are deleted. Whatever happens, every retained version reads like
the model at that version, and the changes between any two versions lead from the earlier to the
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.state_reader import StateReader
from checkpoint_store.tables.table_compaction import MergeBounds, compact_key_groups, merge_files
from checkpoint_store.tables.table_layout import parse_table_file
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_version import TableCompaction, TableMetadata
from tests.support.examples import examples
from tests.support.random_steps import ModelStep, step, take
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import (
    COLUMNS,
    MAX_PARALLELISM,
    METADATA,
    Row,
    ScriptedTable,
    Values,
    by_key,
    reader_of,
    schema_json,
)

pytestmark = pytest.mark.usefixtures("without_threads")

WIDER = schema_json(id="long", name="string", count="integer", added="integer")

State = dict[int, Values]


values = st.none() | st.tuples(
    st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1]), st.sampled_from([None, 7])
)
rows = st.lists(st.builds(Row, st.integers(0, 5), values, st.integers(0, 6)), max_size=6)
bounds = st.builds(MergeBounds, st.sampled_from([6_000, 1 << 40]), st.integers(2, 5))
commits = step(
    "commit", st.lists(rows, max_size=3), bounds, st.sampled_from([False, False, False, True])
)
steps = st.one_of(
    *(commits, commits, commits, commits),
    step("add_column"),
    step("prepare", st.integers(1, 3)),
    step("publish_prepared"),
    step("retain", st.integers(2, 6)),
)


@dataclass
class Model:
    """The state after each version, with values of all columns, also of later columns."""

    metadata: TableMetadata
    state: State = field(default_factory=dict)
    greatest: dict[int, int] = field(default_factory=dict)
    versions: list[State] = field(default_factory=list)

    def apply(self, row: Row) -> None:
        if self.metadata.sequence_by is not None:
            if row.sequence < self.greatest.get(row.id, row.sequence):
                return
            self.greatest[row.id] = row.sequence
        if row.values is None:
            self.state.pop(row.id, None)
            return
        new = row.values
        if self.metadata.ignore_null_updates and row.id in self.state:
            old = self.state[row.id]
            new = tuple(o if n is None else n for o, n in zip(old, new, strict=True))
        self.state[row.id] = new

    def changes(self, start: int | None, end: int, oldest: int) -> list[tuple[Any, ...]]:
        """The changes of (start, end]. From nothing, the oldest version inserts all its rows."""
        first = oldest if start is None else start + 1
        changed_rows = []
        for version in range(first, end + 1):
            from_nothing = start is None and version == oldest
            before = {} if from_nothing or version == 0 else self.versions[version - 1]
            after = self.versions[version]
            for key in before.keys() | after.keys():
                old, new = before.get(key), after.get(key)
                if old == new:
                    continue
                if old is not None:
                    kind = "delete" if new is None else "update_preimage"
                    changed_rows.append((key, *old, kind, version))
                if new is not None:
                    kind = "insert" if old is None else "update_postimage"
                    changed_rows.append((key, *new, kind, version))
        return changed_rows


class TableUnderTest:
    """The table, the model beside the table, and a reader that exists from the beginning."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.objects = DictObjectStore()
        self.metadata = metadata
        self.model = Model(metadata)
        self.batch = -1
        self.oldest = 0
        self.columns_of: list[str] = []
        self.columns = COLUMNS
        self.prepared: TableCompaction | None = None
        self.query = ScriptedTable(self.objects, metadata=metadata)
        self.reader = reader_of(self.objects)

    def add_column(self) -> None:
        """Let later rows have one more column."""
        self.columns = WIDER

    def publish_prepared(self) -> None:
        """Publish a prepared compaction, perhaps long after its preparation."""
        if self.prepared is not None:
            self.query.table.publish_compaction(self.prepared)
            self.prepared = None

    def commit(self, batch: Sequence[Sequence[Row]], bounds: MergeBounds, repeats: bool) -> None:
        """Publish a batch of files. `repeats`: the batch is the last batch again, and its rows
        must not count."""
        repeats = repeats and self.batch >= 0
        files = [self.rows_of_file(file) for file in batch]
        if not repeats:
            self.batch += 1
            for row in (row for file in files for row in file):
                self.model.apply(row)
            self.model.versions.append(dict(self.model.state))
            self.columns_of.append(self.columns)
        width = 2 if self.columns == COLUMNS else 3
        query = ScriptedTable(self.objects, metadata=self.metadata)
        handles = [
            query.write(
                self.batch,
                [Row(row.id, row.values and row.values[:width], row.sequence) for row in file],
                self.columns,
                subtask,
            )
            for subtask, file in enumerate(files)
        ]
        version = query.publish(
            self.batch,
            handles,
            self.columns,
            merge=lambda version: merge_files(query.table, version, bounds),
            merges_schema=True,
        )
        assert version.version == self.batch

    def rows_of_file(self, rows: Sequence[Row]) -> list[Row]:
        """The rows as a sink writes them: without a column before the column exists. A key comes
        once, or in the order of its sequence."""
        if self.columns == COLUMNS:
            rows = [replace(r, values=r.values and (*r.values[:2], None)) for r in rows]
        if self.metadata.sequence_by is not None:
            return sorted(rows, key=lambda row: row.sequence)
        return list({row.id: row for row in rows}.values())

    def prepare(self, parts: int) -> None:
        """Fold the newest version in parts, without publishing."""
        version = self.query.table.newest()
        if version is None:
            return
        ranges = [key_group_range_of_subtask(MAX_PARALLELISM, parts, n) for n in range(parts)]
        self.prepared = TableCompaction(
            version.version,
            tuple(file.name for file in version.state),
            tuple(
                compact_key_groups(self.query.table, version, key_groups, part)
                for part, key_groups in enumerate(ranges)
            ),
        )

    def retain(self, versions: int) -> None:
        """Delete old versions and all orphans."""
        # A prepared compaction has no name yet, so a sweep takes the files for orphans. The same
        # happens to a compaction that takes longer than the grace period.
        self.prepared = None
        TableRetention(self.objects, self.query.table).retain(versions)
        sweep_orphans(self.objects, TableOrphans(self.objects, self.query.table), 0.0, 1.0)
        self.oldest = max(self.oldest, self.batch + 1 - versions)
        self.check_files()

    def check_files(self) -> None:
        table = self.query.table
        read_versions = [table.read_version(number) for number in table.versions()]
        named = {name for version in read_versions if version for name in version.object_names()}
        assert len(read_versions) == self.batch + 1 - self.oldest
        named |= {file.name for compaction in table.compactions() for file in compaction.files}
        assert named == {name for name in self.objects.objects if parse_table_file(name)}

    def check_state(self, reader: StateReader, version: int) -> None:
        width = 2 if self.columns_of[version] == COLUMNS else 3
        expected = {key: row[:width] for key, row in self.model.versions[version].items()}
        assert by_key(reader.read(version)) == expected
        some = KeyGroupRange(1, 2)
        assert by_key(reader.read(version, some)) == {
            key: row for key, row in expected.items() if key % MAX_PARALLELISM in some
        }

    def check_changes(self, reader: StateReader, start: int | None, end: int) -> None:
        width = 2 if self.columns_of[end] == COLUMNS else 3
        changed_rows = reader.changes(start, end).drop_columns(["_commit_timestamp"])
        expected = [
            (*row[: 1 + width], *row[-2:]) for row in self.model.changes(start, end, self.oldest)
        ]
        actual = [tuple(row.values()) for row in changed_rows.to_pylist()]
        assert [row[-1] for row in actual] == sorted(row[-1] for row in actual)
        assert sorted(actual, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("ignores_nulls", [False, True], ids=["nulls count", "nulls are ignored"])
@pytest.mark.parametrize("sequence_by", [None, "at"], ids=["plain", "sequenced"])
@examples(10)
@given(
    script=st.lists(steps, min_size=3, max_size=20), ends=st.lists(st.integers(0, 99), min_size=6)
)
def test_every_retained_version_reads_as_the_model_was_then(
    sequence_by: str | None, ignores_nulls: bool, script: list[ModelStep], ends: Sequence[int]
) -> None:
    metadata = replace(METADATA, sequence_by=sequence_by, ignore_null_updates=ignores_nulls)
    table = TableUnderTest(metadata)
    with mock.patch("checkpoint_store.tables.table_retention._VERSIONS_AT_ONCE", 1):
        for each in script:
            take(table, [each])
            if table.batch >= 0:
                table.check_state(table.reader, table.batch)
    fresh = reader_of(table.objects)
    retained = range(table.oldest, table.batch + 1)
    assert [info.version for info in fresh.versions()] == [*retained]
    for version in retained:
        table.check_state(fresh, version)
    if retained:
        table.check_changes(fresh, None, retained[-1])
        table.check_changes(table.reader, retained[0], retained[-1])
        for left, right in zip(ends[::2], ends[1::2], strict=False):
            start, end = sorted(retained[place % len(retained)] for place in (left, right))
            table.check_changes(fresh, start, end)
            table.check_changes(fresh, None, end)
