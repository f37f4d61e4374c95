"""Snapshots in parts give the same totals as a dict in random runs at any parallelism.

Snapshots are due after few changes, no state counts as small, and all files have an index. So
chains hold parts of several rounds, cut by rescaling, and read in part. After each epoch every key
has its total, whichever host restored the key. At the end every epoch is read again with its
changes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pyspark.sql import Row

from checkpoint_store import open_store
from checkpoint_store.files import state_file
from spark_state.checkpointing import snapshot_policy
from spark_state.subtasks.maintenance import Maintenance
from tests.support.examples import examples
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import RunningTotals
from tests.support.tables.table_rows_of import schema_json

pytestmark = pytest.mark.usefixtures("without_threads")
KEYS = [f"key {number}" for number in range(24)]
FORGET = -1


class Forgetting(RunningTotals):
    """RunningTotals whose keys lose their state after a row of `FORGET`."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        yield from super().handleInputRows(key, iter(seen), timerValues)
        if any(row.value == FORGET for row in seen):
            self._totals.clear()


Epoch = list[tuple[str, int]]
epochs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([FORGET, 1, 2, 3])),
    max_size=12,
    unique_by=lambda row: row[0],
)


@dataclass(frozen=True)
class QueryStart:
    """One start of the query, with the attempts of each epoch (I6) and the number of alternating
    hosts."""

    parallelism: int
    epochs: list[Epoch]
    attempts: int
    hosts: int


runs = st.builds(
    QueryStart,
    st.sampled_from([1, 1, 2, 3, 8]),
    st.lists(epochs, min_size=1, max_size=4),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([1, 1, 2]),
)


class Query:
    """The runs of a query over a store in `folder`, and the expected states."""

    def __init__(self, folder: Path, maintenance: Maintenance) -> None:
        self._folder = folder
        self._maintenance = maintenance
        self.states: list[dict[str, int]] = []

    def run(self, number: int, run: QueryStart) -> None:
        spec = operator(
            self._folder,
            Forgetting(),
            parallelism=run.parallelism,
            key_schema_json=schema_json(key="string"),
            min_epochs_for_snapshot=2,
        )
        hosts = [
            [
                Host(spec, subtask, f"run-{number}").open(self._maintenance)
                for subtask in range(run.parallelism)
            ]
            for _ in range(run.hosts)
        ]
        for place, rows in enumerate(run.epochs):
            self._epoch(hosts[place % run.hosts], rows, run.attempts)

    def _epoch(self, hosts: list[Host], rows: Epoch, attempts: int) -> None:
        epoch = len(self.states)
        state = dict(self.states[-1]) if self.states else {}
        totals = {key: state.get(key, 0) + value for key, value in rows}
        for attempt in range(attempts):
            for host in hosts:
                mine = host.epoch(epoch, rows, attempt=10 * epoch + attempt + 1)
                assert {key: total for key, (_, total) in mine.items()}.items() <= totals.items()
        forgotten = {key for key, value in rows if value == FORGET}
        state |= totals
        self.states.append({key: state[key] for key in state.keys() - forgotten})

    def check_history(self) -> None:
        reader = open_store(str(self._folder / "query" / "totals"))
        for epoch, expected in enumerate(self.states):
            rows = reader.read(epoch).to_pylist()
            assert {row["key"]: row["total"] for row in rows} == expected
        followed = dict(self.states[0])
        for change in reader.changes(0).to_pylist():
            if change["_change_type"] in ("delete", "update_preimage"):
                assert followed.pop(change["key"]) == change["total"]
            else:
                followed[change["key"]] = change["total"]
        assert followed == self.states[-1]

    def snapshots(self) -> int:
        return len([*self._folder.glob("query/totals/epochs/*/snapshot-*")])


@given(st.lists(runs, min_size=1, max_size=14))
@examples(15)
def test_state_is_that_of_a_dict_however_it_is_kept(history: list[QueryStart]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(snapshot_policy, "FEW_ENTRIES", 0),
        mock.patch.object(state_file, "INDEXED_BYTES", 0),
        mock.patch.object(state_file, "BATCH_ROWS", 2),
    ):
        with Maintenance() as maintenance:
            query = Query(Path(folder), maintenance)
            for number, run in enumerate(history):
                query.run(number, run)
            query.check_history()
        event(f"{min(query.snapshots(), 5)} snapshots or more")
