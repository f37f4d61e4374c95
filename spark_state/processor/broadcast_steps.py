"""Step of broadcast streams: every subtask gets all broadcast rows, before the keyed rows.

    class Alerts(StatefulProcessor):
        def init(self, handle):
            self._limits = handle.getBroadcastState("limits", "country string", "most double")

        def handleBroadcastRows(self, name, rows, state):
            for row in sorted(rows, key=lambda row: row.at):
                state["limits"].updateValue((row.country,), (row.most,))

All subtasks must make the same changes, but Spark delivers the rows in any order. So the step sorts
the rows by all columns, from left to right, before the processor gets the rows. The processor may
sort the rows again: the processor above sorts them by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_state.errors import ConfigurationError
from spark_state.frozen_keys import frozen, in_order
from spark_state.processor.epoch_steps import EpochRun
from spark_state.processor.input.epoch_inputs import EpochInput, broadcast_input
from spark_state.processor.input.key_grouping import KeyedInput


def handle_broadcast_rows(names: tuple[str, ...], run: EpochRun) -> Iterator[Any]:
    """Call `handleBroadcastRows(name, rows, state)` for each broadcast stream with rows, see Step,
    in the order of `names`. `state`: the broadcast states by name. Yields nothing, because every
    subtask would yield the same output."""
    states, handle_rows = run.operator_states, run.processor.handleBroadcastRows
    for name in names:
        given = run.inputs[broadcast_input(name)]
        assert isinstance(given, EpochInput), "broadcast rows are always in memory"
        if not given.table.num_rows:
            continue
        run.check()
        states.broadcasts_may_change = True
        run.call.begin("handleBroadcastRows")
        output = handle_rows(name, _rows(run, given), states.broadcast)
        states.broadcasts_may_change = False
        if output is not None:
            raise ConfigurationError(
                f"{type(run.processor).__name__}.handleBroadcastRows returned {output!r}; it "
                "must return None: every subtask calls it with the same rows, so it has no "
                "output. If it has a yield, take that out"
            )
    return iter(())


def _rows(run: EpochRun, given: EpochInput) -> Iterator[Any]:
    """Return the sorted rows, in the form of rows that the processor gets."""
    rows = _in_order(given.table.select(range(given.layout.key_group_index)))
    one_key = KeyedInput(rows, [()], [0], [rows.num_rows])
    return next(run.row_form.rows_by_key(one_key, given.layout.row_names))


def _in_order(rows: pa.Table) -> pa.Table:
    """Sort the rows by all columns. Sorts Python values, because Arrow's kernel cannot sort lists,
    maps and structs."""
    columns = (column.to_pylist() for column in rows.columns)
    values = zip(*columns, strict=True)
    numbered = [(*map(frozen, row), number) for number, row in enumerate(values)]
    return rows.take([row[-1] for row in in_order(numbered)])
