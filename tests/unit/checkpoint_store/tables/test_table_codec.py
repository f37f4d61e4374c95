"""Names and versions of a table have the documented form, and compactions replace whole files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from checkpoint_store.files.epoch_file_name import EpochFileName
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.tables.table_codec import encode_version
from checkpoint_store.tables.table_layout import (
    BatchDirectory,
    CompactionName,
    parse_batch_directory,
    parse_compaction,
    parse_table_file,
    parse_version,
    version_name,
)
from checkpoint_store.tables.table_version import TableCompaction, compacted
from tests.unit.checkpoint_store.files.test_document import (
    COMPACTION,
    ONE,
    SNAPSHOT,
    THREE,
    TWO,
    VERSION,
)


def test_a_file_that_is_new_and_of_the_state_is_written_once() -> None:
    data = encode_version(VERSION)
    assert data.count(ONE.name.encode()) == data.count(TWO.name.encode()) == 1
    assert json.loads(data)["body"]["state"][1:] == [0, 1]


def test_names_are_those_that_the_layout_documents_and_parse() -> None:
    assert version_name(7) == "versions/0000000000000000007.json"
    assert parse_version(version_name(7)) == 7
    compaction = CompactionName(7, "0123456789ab")
    assert str(compaction) == "compactions/0000000000000000007-0123456789ab.json"
    assert parse_compaction(str(compaction)) == compaction
    directory = BatchDirectory("query-a", 3)
    file = EpochFileName(str(directory), "snapshot", 2, 40, "0123456789ab")
    assert str(file) == (
        "data/query-a/0000000000000000003/snapshot-00002-0000000000000000040-0123456789ab.arrow"
    )
    assert parse_table_file(str(file)) == parse_batch_directory(str(directory)) == directory


@pytest.mark.parametrize(
    "name",
    [
        "versions/7.json",
        "versions/0000000000000000007.json.crc",
        "compactions/0000000000000000007-0123456789a.json",
        "data/query-a/0000000000000000003/changelog-00002-1-0123456789ab.arrow",
        "data/query-a/0000000000000000003/rumour-00002-0000000000000000040-0123456789ab.arrow",
        "_SUCCESS",
    ],
)
def test_names_of_others_are_not_ours(name: str) -> None:
    assert not any(parse(name) for parse in (parse_version, parse_compaction, parse_table_file))


class TestCompactionsThatFit:
    def test_a_state_that_begins_with_what_is_replaced_is_compacted(self) -> None:
        merged = compacted(replace(VERSION, state=(SNAPSHOT, ONE, THREE)), (COMPACTION,))
        assert merged.state == (*COMPACTION.files, THREE)
        assert merged.changes == VERSION.changes

    @pytest.mark.parametrize("state", [(SNAPSHOT,), (ONE, SNAPSHOT), (SNAPSHOT, TWO, ONE), ()])
    def test_any_other_state_stays_as_it_is(self, state: tuple[StateHandle, ...]) -> None:
        version = replace(VERSION, state=state)
        assert compacted(version, (COMPACTION,)) == version

    def test_the_newest_that_fits_is_applied(self) -> None:
        older = TableCompaction(3, (SNAPSHOT.name,), (THREE,))
        newer = TableCompaction(99, (THREE.name,), (TWO,))
        version = replace(VERSION, state=(SNAPSHOT, ONE))
        assert compacted(version, (older, COMPACTION, newer)).state == COMPACTION.files
        assert compacted(version, (older, newer)).state == (THREE, ONE)
