"""A subtask finds the side inputs in its table and handles them before the keyed rows."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_state.processor.broadcast_steps import handle_broadcast_rows
from spark_state.processor.epoch_steps import handle_initial_state
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import (
    INITIAL_ROWS,
    KEYED_ROWS,
    EpochInputs,
    SideInput,
    broadcast_input,
)
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.processor.input.spilled_rows import SpilledRows
from tests.support.operators.subtasks import Host, OpenHost, Totals, table_of
from tests.support.processors.initial_states import BeginsWith

RULE = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])
START = pa.struct([("total", pa.int64()), ("name", pa.string())])
RULES, LAYOUT = broadcast_input("rules"), InputLayout(("key", "value"), (0,))
SIDES = (
    SideInput(RULES, "side 0", InputLayout(("name", "tags"), ())),
    SideInput(INITIAL_ROWS, "side 1", InputLayout(("total", "name"), (1,))),
)


def united(
    keyed: list[tuple[str, int]], rules: list[Any], initial: list[tuple[str, int]], subtask: int = 0
) -> pa.Table:
    """Make a subtask's table: keyed rows, rules, and rows (key, total) of the initial state."""
    groups_of_initial = table_of(initial, 8).column(2)
    starts = [{"total": total, "name": name} for name, total in initial]
    parts = [
        table_of(keyed, 8)
        .append_column("side 0", pa.nulls(len(keyed), RULE))
        .append_column("side 1", pa.nulls(len(keyed), START)),
        without_key(
            pa.array([control_key_group(subtask)] * len(rules), pa.int32()),
            pa.array(rules, RULE),
            pa.nulls(len(rules), START),
        ),
        without_key(groups_of_initial, pa.nulls(len(starts), RULE), pa.array(starts, START)),
    ]
    return pa.concat_tables(parts)


def without_key(groups: Any, rules: Any, starts: Any) -> pa.Table:
    length = len(groups)
    columns = [pa.nulls(length, pa.string()), pa.nulls(length, pa.int64()), groups, rules, starts]
    names = ["key", "value", "_cowstate_key_group", "side 0", "side 1"]
    return pa.Table.from_arrays(columns, names)


@pytest.mark.parametrize("tells_time", [True, False])
def test_the_rows_of_each_input_are_found_again(tells_time: bool) -> None:
    table = united([("a", 1)], [{"name": "r", "tags": ["x"]}, {}], [("b", 5), ("a", 6)])
    if tells_time:
        table = table.append_column("time", pa.array([77] * table.num_rows))
    inputs = EpochInputs(LAYOUT, SIDES, tells_time)
    by_name = inputs.by_name(table)
    assert inputs.batch_ms(table) == (77 if tells_time else None)
    assert by_name[KEYED_ROWS].table.column(0).to_pylist() == ["a"]
    rules, initial = by_name[RULES].table, by_name[INITIAL_ROWS].table
    assert [column.to_pylist() for column in rules.columns] == [
        ["r", None],
        [["x"], None],
        [-1, -1],
    ]
    groups = table_of([("b", 5), ("a", 6)], 8).column(2).to_pylist()
    assert [column.to_pylist() for column in initial.columns] == [[5, 6], ["b", "a"], groups]


def test_an_input_without_rows_is_empty() -> None:
    for table in (united([("a", 1)], [], []), united([], [], []), pa.table({})):
        by_name = EpochInputs(LAYOUT, SIDES).by_name(table)
        assert by_name[RULES].table.num_rows == by_name[INITIAL_ROWS].table.num_rows == 0


class BeginsByRules(BeginsWith):
    """BeginsWith that also counts rules; the initial state of a key counts only if a rule
    exists."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._rules = handle.getBroadcastState("rules", "name string", "n bigint")

    def handleBroadcastRows(self, name: str, rows: Any, state: Any) -> None:
        for row in rows:
            state["rules"].updateValue((row.name,), (len(row.tags),))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        assert (initialState.name,) == key
        if self._rules.exists():
            super().handleInitialState(key, Row(total=initialState.total), timerValues)


def begun(open_host: OpenHost, processor: Any, **changes: Any) -> Host:
    host = open_host(processor, **changes)
    plan = host.spec.processor.run_plan
    plan = replace(
        plan,
        inputs=EpochInputs(LAYOUT, SIDES),
        steps=(partial(handle_broadcast_rows, ("rules",)), handle_initial_state, *plan.steps),
    )
    host.spec = replace(host.spec, processor=replace(host.spec.processor, run_plan=plan))
    return host


def run(host: Host, epoch: int, attempt: int, *inputs: Any) -> Totals:
    return host.run(epoch, united(*inputs), attempt)


RULE_ROWS = [{"name": "r", "tags": []}]


def test_rules_come_first_then_the_initial_state_then_rows(open_host: OpenHost) -> None:
    host = begun(open_host, BeginsByRules())
    initial = [("b", 5), ("a", 100), ("b", 6)]
    assert run(host, 0, 1, [("a", 1)], RULE_ROWS, initial) == {"a": (11, 101)}
    assert run(host, 1, 2, [("a", 1), ("b", 1)], [], []) == {"a": (12, 102), "b": (21, 12)}
    assert host.report is not None
    assert host.report.rows_in == 2


def test_a_first_epoch_that_runs_again_begins_anew(open_host: OpenHost) -> None:
    for host in (begun(open_host, BeginsByRules()), begun(open_host, BeginsByRules())):
        for attempt in (1, 2):
            again = run(host, 0, attempt, [("a", 1)], RULE_ROWS, [("a", 100)])
            assert again == {"a": (11, 101)}


def test_a_failing_row_leaves_nothing(open_host: OpenHost) -> None:
    host = begun(open_host, BeginsByRules())
    bad = [{"name": "r", "tags": None}]
    with pytest.raises(TypeError):
        run(host, 0, 1, [("a", 1)], bad, [("a", 100)])
    with pytest.raises(TypeError):
        run(host, 0, 2, [("a", 1)], RULE_ROWS, [("a", 100), ("b", None)])
    assert run(host, 0, 3, [("a", 1)], RULE_ROWS, [("a", 7)]) == {"a": (11, 8)}


def test_spilled_inputs_come_in_the_same_order_and_to_the_same(open_host: OpenHost) -> None:
    host = begun(open_host, BeginsByRules())
    assert host.session is not None
    plan = host.spec.processor.run_plan
    script = [
        united([("a", 1)], RULE_ROWS, [("b", 5), ("a", 100), ("b", 6)]),
        united([("a", 1), ("b", 1)], [], []),
    ]
    outputs = []
    for epoch, table in enumerate(script):
        spilled = SpilledRows(plan.inputs, None, tempfile.gettempdir(), part_bytes=1)
        # The last row is spilled first, and the inputs are still told apart.
        kept = [spilled.spill(table.slice(row, 1)) for row in reversed(range(table.num_rows))]
        assert any(kept) == (epoch == 0)
        request = host.request(epoch, epoch + 1)
        attempt = host.session.accept(request, lambda: None)
        with closing(spilled), host.session.run(attempt, spilled) as durable:
            pass
        assert durable.report.rows_in == epoch + 1
        with durable.output as spool:
            outputs.append([tuple(row.values()) for b in spool.read() for row in b.to_pylist()])
    assert outputs == [[("a", 11, 101)], [("a", 12, 102), ("b", 21, 12)]]
