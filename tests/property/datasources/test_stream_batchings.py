"""A stream over lost versions, without failOnDataLoss, gives each readable change once in any
batches.

The log names the lost changes. The undamaged store decides the readable changes: the changes of
each existing version whose previous state exists, or is not needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.epochs.operator_layout import parse_barrier, parse_manifest
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.state_reader import StateReader
from checkpoint_store.tables.table_layout import version_name
from spark_state.errors import ConfigurationError
from tests.support.examples import examples
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.stores.damage import sorted_rows
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.streamed_objects import streamed_in_batches
from tests.support.tables.table_rows_of import METADATA, SEQUENCED, Row, ScriptedTable, reader_of

pytestmark = pytest.mark.usefixtures("without_threads")

VERSIONS = 6
OF_TABLE = (
    StructType()
    .add("id", LongType())
    .add("name", StringType())
    .add("count", IntegerType())
    .add("_change_type", StringType())
    .add("_commit_version", LongType())
)
OF_OPERATOR = (
    StructType()
    .add("key", LongType())
    .add("n", IntegerType())
    .add("_change_type", StringType())
    .add("_commit_version", LongType())
)
Changes = list[tuple[Any, ...]]
LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxVersionsPerTrigger": "1"},
    {"maxVersionsPerTrigger": "2"},
    {"maxVersionsPerTrigger": "3"},
    {"maxFilesPerTrigger": "2"},
)
EXAMPLES = examples(12)

rows = st.lists(
    st.builds(
        Row,
        st.integers(0, 5),
        st.none() | st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3)),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=4,
)
missing = st.sets(st.integers(0, VERSIONS - 1), max_size=4)
firsts = st.integers(0, VERSIONS - 1)


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the log messages about a batch's plan inside the `with` block."""
    messages: list[str] = []

    class Collected(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("datasources.streams.stream_batch"), Collected()
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def passed_over(messages: Sequence[str]) -> list[int]:
    """The versions whose changes the messages name as lost, with repetitions."""
    versions: list[int] = []
    for message in messages:
        match = re.search(r"the changes (?:after version (\d+) )?up to version (\d+), ", message)
        assert match is not None, message
        versions += range(int(match[1] or -1) + 1, int(match[2]) + 1)
    return sorted(versions)


def check_all_batchings(
    objects: DictObjectStore,
    columns: StructType,
    expected: Changes,
    lost: Sequence[int] | None,
    options: Mapping[str, str],
) -> None:
    for limits in LIMITS:
        with logged() as messages:
            given_options = {"failOnDataLoss": "false", **options, **limits}
            batches = streamed_in_batches(objects, columns, **given_options)
        delivered = [row for batch in batches for row in batch]
        assert sorted(delivered, key=repr) == sorted(expected, key=repr), limits
        if lost is not None:
            assert passed_over(messages) == lost, limits


def without_time(changes: Any) -> Changes:
    return sorted_rows(changes.drop_columns(["_commit_timestamp"]))


@pytest.mark.parametrize("metadata", [METADATA, SEQUENCED], ids=["upserts", "sequenced"])
@EXAMPLES
@given(st.lists(rows, min_size=VERSIONS, max_size=VERSIONS), missing, firsts, st.booleans())
def test_a_table_s_changes_are_the_same_however_they_are_cut_into_batches(
    metadata: Any, commits: Sequence[Sequence[Row]], missing: set[int], first: int, preimages: bool
) -> None:
    objects = DictObjectStore()
    query = ScriptedTable(objects, metadata=metadata)
    for batch, of_batch in enumerate(commits):
        # Rows of one key in a file are the sink's affair.
        query.commit(batch, *{row.id: row for row in of_batch}.values())
    intact = reader_of(objects.copy())
    objects.delete([version_name(version) for version in missing])
    there = [version for version in range(VERSIONS) if version not in missing]
    needs_state = preimages or metadata is SEQUENCED
    readable = [
        version
        for version in there
        if version >= first and (version - 1 in there or not needs_state)
    ]
    oldest = []
    if there and not first:
        # A stream from the beginning starts with all rows of the oldest version.
        oldest = without_time(reader_of(objects).changes(None, there[0], preimages=preimages))
        readable = [version for version in readable if version > there[0]]
    lost = [
        version
        for version in range(first, max(there, default=-1) + 1)
        if version not in readable and (first or version > there[0])
    ]
    expected = oldest + [
        change
        for version in readable
        for change in without_time(
            intact.changes(version - 1 if version else None, version, preimages=preimages)
        )
    ]
    options = {"startingVersion": str(first), "preimages": str(preimages)}
    if there and first > there[-1] + 1:
        with pytest.raises(ConfigurationError, match="startingVersion"):
            check_all_batchings(objects, OF_TABLE, expected, lost, options)
        return
    check_all_batchings(objects, OF_TABLE, expected, lost, options)


def delete_epoch(objects: DictObjectStore, epoch: int) -> None:
    """Delete the manifest and the barriers of an epoch. Later epochs need the files, so the files
    stay."""
    for name in [*objects.objects]:
        manifest, barrier = parse_manifest(name), parse_barrier(name)
        if (manifest and manifest.epoch == epoch) or (barrier and barrier.directory.epoch == epoch):
            objects.delete([name])


epochs = st.lists(
    st.dictionaries(st.integers(0, 7), st.integers(1, 3), min_size=1, max_size=4),
    min_size=VERSIONS,
    max_size=VERSIONS,
)


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
@EXAMPLES
@given(epochs, missing, firsts, st.booleans(), st.booleans())
def test_an_operator_s_changes_are_the_same_however_they_are_cut_into_batches(
    mode: str,
    changes: Sequence[Mapping[int, int]],
    missing: set[int],
    first: int,
    preimages: bool,
    is_ahead: bool,
) -> None:
    """The last epoch has one channel only, or both."""
    objects = DictObjectStore()
    operator = KeyedOperator(objects)
    last = VERSIONS - 1
    for epoch, of_epoch in enumerate(changes):
        operator.run_epoch(epoch, of_epoch)
    intact = StateReader(OperatorHistory(objects.copy(), KEYED, None))
    if is_ahead:
        for name in [*objects.objects]:
            manifest, barrier = parse_manifest(name), parse_barrier(name)
            of_last = barrier and barrier.directory.epoch == last and barrier.subtask == 0
            if of_last or (manifest and manifest.epoch == last):
                objects.delete([name])
    for epoch in missing - {last}:
        delete_epoch(objects, epoch)
    whole = [epoch for epoch in range(VERSIONS) if epoch == last or epoch not in missing]
    if is_ahead:
        whole.remove(last)
    if whole:
        first = min(first, whole[-1] + 1)  # a later version is refused
    ranges = {epoch: range(8) for epoch in whole}
    if is_ahead and mode == "at_least_once":
        ranges[last] = range(4, 8)
    expected: Changes = []
    for epoch, keys in ranges.items():
        before = epoch - 1 if epoch else None
        if first == 0 and whole and epoch == whole[0]:
            changed = StateReader(OperatorHistory(objects, KEYED, None)).changes(
                None, epoch, preimages=preimages
            )
        elif epoch >= first and (before in whole or before is None or not preimages):
            changed = intact.changes(before, epoch, preimages=preimages)
        else:
            continue
        expected += [row for row in without_time(changed) if row[0] in keys]
    options = {
        "startingVersion": str(first),
        "preimages": str(preimages),
        "checkpointingMode": mode,
    }
    check_all_batchings(objects, OF_OPERATOR, expected, None, options)
