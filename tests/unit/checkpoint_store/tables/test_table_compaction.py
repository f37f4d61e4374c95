"""Folding keeps a table's files few, preserves the rows, and rewrites each row seldom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.tables.table_compaction import (
    MergeBounds,
    first_to_merge,
    merge_files,
)
from checkpoint_store.tables.table_layout import parse_table_file
from checkpoint_store.tables.table_version import TableMetadata, TableVersion
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import (
    COLUMNS,
    MAX_PARALLELISM,
    METADATA,
    SEQUENCED,
    Row,
    ScriptedTable,
    gone,
    put,
    schema_json,
    state_of,
)

ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)
# Files up to this size count as equally large.
SMALL = 64 << 10
UNLIMITED = 1 << 60


def files(*lengths: int) -> list[StateHandle]:
    return [
        StateHandle("changelog", f"data/{place}", length, "", ALL, place, 1)
        for place, length in enumerate(lengths)
    ]


def merged_from(
    *lengths: int, bytes: int = UNLIMITED, count: int = 3, whole: bool = False
) -> int | None:
    """Return the position of the first folded file, None if no file is folded."""
    place = first_to_merge(files(*lengths), MergeBounds(bytes, count), whole=whole)
    return None if place == len(lengths) else place


class TestWhichFilesAreFolded:
    BIG = 10 * SMALL

    def test_none_while_there_are_few(self) -> None:
        assert merged_from() is None
        assert merged_from(1, 1) is None
        assert merged_from(1, 1, 1) == 0

    def test_those_back_to_one_more_than_twice_as_large_as_all_newer_ones(self) -> None:
        big = self.BIG
        assert merged_from(7 * big, big, big, big) == 1
        assert merged_from(6 * big, big, big, big) == 0
        assert merged_from(100 * big, 6 * big, big, big, big) == 1
        assert merged_from(100 * big, 6 * big + 1, big, big, big) == 2

    def test_sizes_of_small_files_do_not_matter(self) -> None:
        assert merged_from(2 * SMALL, 1, 1) == 0
        assert merged_from(2 * SMALL + 1, 1, 1) is None
        assert merged_from(2 * SMALL + 1, 1, 1, 1) == 1

    def test_no_more_bytes_than_allowed(self) -> None:
        big = self.BIG
        assert merged_from(big, big, big, big, bytes=4 * big) == 0
        assert merged_from(big, big, big, big, bytes=4 * big - 1) == 1
        assert merged_from(big, big, big, big, bytes=2 * big) is None

    def test_all_or_nothing_where_only_the_whole_may_be_folded(self) -> None:
        big = self.BIG
        assert merged_from(3 * big, big, big, whole=True) == 0
        assert merged_from(5 * big, big, big, big, bytes=7 * big) == 1
        assert merged_from(5 * big, big, big, big, bytes=7 * big, whole=True) is None
        assert merged_from(7 * big, big, big, big, whole=True) is None
        assert merged_from(1, 1, whole=True) is None

    @given(
        st.lists(st.tuples(st.integers(SMALL, 1000 * SMALL), st.integers(1, 100)), min_size=1),
        st.integers(2, 12),
    )
    @example([(3 * SMALL, 2000)], 10)
    def test_files_stay_few_and_rows_are_rewritten_seldom(
        self, runs: list[tuple[int, int]], count: int
    ) -> None:
        """The worst case: no row is ever replaced, so a fold is as large as the sum of its
        files."""
        state: list[int] = []
        rewritten = total = 0
        smallest = min(length for length, _ in runs)
        for length in (length for length, times in runs for _ in range(times)):
            state.append(length)
            total += length
            first = first_to_merge(files(*state), MergeBounds(UNLIMITED, count), whole=False)
            if first < len(state):
                rewritten += sum(state[first:])
                state[first:] = [sum(state[first:])]
            levels = math.log2(total / smallest) + 1
            assert len(state) <= count + 2 * levels
        assert rewritten <= total * levels

    @given(st.lists(st.integers(1, 100), min_size=1, max_size=200), st.integers(2, 12))
    def test_files_of_small_commits_stay_bounded(self, commits: list[int], count: int) -> None:
        state: list[int] = []
        for length in commits:
            state.append(length)
            first = first_to_merge(files(*state), MergeBounds(UNLIMITED, count), whole=False)
            if first < len(state):
                state[first:] = [sum(state[first:])]
            assert len(state) <= count

    @given(st.lists(st.integers(1, 40 * SMALL), max_size=100), st.integers(1, 200 * SMALL))
    def test_a_fold_is_within_its_bounds(self, lengths: list[int], bytes: int) -> None:
        for whole in (False, True):
            first = merged_from(*lengths, bytes=bytes, whole=whole)
            if first is not None:
                assert sum(lengths[first:]) <= bytes
                assert len(lengths) - first >= 3
                assert first == 0 or not whole


def committed(
    metadata: TableMetadata, *batches: Sequence[Row], columns: str = COLUMNS
) -> tuple[ScriptedTable, TableVersion]:
    """Make a table with a file for each batch. Return the writer and the newest version."""
    query = ScriptedTable(DictObjectStore(), metadata=metadata)
    for batch, rows in enumerate(batches):
        version = query.publish(batch, [query.write(batch, rows, columns)], columns)
    return query, version


def rows_in(query: ScriptedTable, *handles: StateHandle) -> list[tuple[int, str, object]]:
    """Return key, operation and sequence of each row of the files."""
    return [
        (row["id"], row["_op"], row.get("_sequence"))
        for handle in handles
        for batch in query.table.read_rows(handle, ALL)
        for row in batch.to_pylist()
    ]


BOUNDS = MergeBounds(UNLIMITED, files=3)
BATCHES = (
    [put(1, "a", 1, sequence=1), put(2, "b", 2, sequence=5), put(4, "d", 4, sequence=1)],
    [gone(1, sequence=2), put(2, "late", None, sequence=4)],
    [put(3, "c", None, sequence=3), put(4, None, 5, sequence=3)],
)


class TestWhatIsFolded:
    def test_fewer_files_than_the_bound_stay_as_they_are(self) -> None:
        query, version = committed(METADATA, *BATCHES)
        assert merge_files(query.table, version, replace(BOUNDS, files=4)) == version.state

    def test_the_whole_state_becomes_a_snapshot_without_deleted_keys(self) -> None:
        query, version = committed(METADATA, *BATCHES)
        (snapshot,) = merge_files(query.table, version, BOUNDS)
        assert snapshot.kind == "snapshot"
        rows = sorted(rows_in(query, snapshot))
        assert rows == [(2, "put", None), (3, "put", None), (4, "put", None)]
        assert snapshot.rows == 3
        name = parse_table_file(snapshot.name)
        assert (name.writer, name.batch) == ("compacted", 2)

    def test_with_a_sequence_deleted_keys_are_kept(self) -> None:
        query, version = committed(SEQUENCED, *BATCHES)
        (snapshot,) = merge_files(query.table, version, BOUNDS)
        rows = sorted(rows_in(query, snapshot))
        assert rows == [(1, "delete", 2), (2, "put", 5), (3, "put", 3), (4, "put", 3)]

    def test_newer_files_alone_become_a_changelog_that_keeps_deletes(self) -> None:
        big = [put(n, f"{n} {math.sin(n)}", n) for n in range(40_000)]
        query, version = committed(METADATA, big, *BATCHES)
        first, changelog = merge_files(query.table, version, BOUNDS)
        assert first == version.state[0]
        assert changelog.kind == "changelog"
        rows = sorted((id, op) for id, op, _ in rows_in(query, changelog))
        assert rows == [(1, "delete"), (2, "put"), (3, "put"), (4, "put")]

    def test_newer_files_alone_are_not_folded_where_nulls_keep_values(self) -> None:
        metadata = replace(METADATA, ignore_null_updates=True)
        query, version = committed(metadata, [put(1, "a", 1)], [gone(1)], [put(1, "b", None)])
        newest_two = sum(file.length for file in version.state[1:])
        folded = merge_files(query.table, version, MergeBounds(newest_two, files=2))
        query.publish(3, [], merge=lambda _: folded)
        assert state_of(query.store) == {1: ("b", None)}

    @pytest.mark.parametrize("metadata", [METADATA, SEQUENCED], ids=["plain", "sequenced"])
    def test_a_table_of_keys_alone(self, metadata: TableMetadata) -> None:
        columns = schema_json(id="long")
        batches = [[put(1), put(2)], [gone(1, sequence=1)], [put(3)]]
        query, version = committed(metadata, *batches, columns=columns)
        folded = merge_files(query.table, version, BOUNDS)
        query.publish(3, [], columns, merge=lambda _: folded)
        assert state_of(query.store) == {2: (), 3: ()}
