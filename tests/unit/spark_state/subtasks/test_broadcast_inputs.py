"""Every subtask gets all rows of a broadcast stream and holds the same broadcast state.

A script's rules are (name, limit); a row of a key emits the limit of the rule with the key's name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state.errors import BroadcastStateError, ConfigurationError, UnsupportedOperationError
from spark_state.processor.broadcast_steps import handle_broadcast_rows
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import EpochInputs, SideInput, broadcast_input
from spark_state.processor.input.key_grouping import InputLayout
from tests.support.operators.subtasks import Host, OpenHost, Totals, table_of

RULE = pa.struct([("name", pa.string()), ("most", pa.int64())])
INPUTS = EpochInputs(
    InputLayout(("key", "value"), (0,)),
    (SideInput(broadcast_input("rules"), "side", InputLayout(("name", "most"), ())),),
)
Rules = list[tuple[str, int]]


class Limits(StatefulProcessor):
    """Emits Row(key, rows, total): `rows` is the number of rules in the epoch, `total` the key's
    limit."""

    def init(self, handle: Any) -> None:
        self._limits = handle.getBroadcastState("limits", "name string", "most bigint")
        self._handled = 0

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        assert name == "rules"
        for row in rows:
            state["limits"].updateValue((row.name,), (row.most,))
            self._handled += 1

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        limit = self._limits.getValue(key)
        yield Row(key=key[0], rows=self._handled, total=-1 if limit is None else limit.most)

    def close(self) -> None:
        pass


@pytest.fixture
def opened(open_host: OpenHost) -> Callable[..., Host]:
    """Return a function that opens a host of an operator with the broadcast stream "rules"."""

    def open_one(processor: Any = None, **changes: Any) -> Host:
        host = open_host(processor or Limits(), **changes)
        plan = host.spec.processor.run_plan
        plan = replace(
            plan, inputs=INPUTS, steps=(partial(handle_broadcast_rows, ("rules",)), *plan.steps)
        )
        host.spec = replace(host.spec, processor=replace(host.spec.processor, run_plan=plan))
        return host

    return open_one


def run(host: Host, epoch: int, keys: str, rules: Rules, attempt: int = 0) -> Totals:
    """Run an epoch with the host's own keys, and with rules in random order."""
    keyed = host.own(table_of([(key, 0) for key in keys], host.spec.max_parallelism))
    keyed = keyed.append_column("side", pa.nulls(keyed.num_rows, RULE))
    shuffled = random.sample(rules, len(rules))
    structs = pa.array([{"name": name, "most": most} for name, most in shuffled], RULE)
    broadcast = pa.table(
        {
            "key": pa.nulls(len(rules), pa.string()),
            "value": pa.nulls(len(rules), pa.int64()),
            "_cowstate_key_group": pa.array(
                [control_key_group(host.subtask)] * len(rules), pa.int32()
            ),
            "side": structs,
        }
    )
    tables = [keyed, broadcast] if epoch % 2 else [broadcast, keyed]
    return host.run(epoch, pa.concat_tables(tables), attempt)


def test_rules_come_before_the_rows_of_their_batch(opened: Callable[..., Host]) -> None:
    host = opened()
    assert run(host, 0, "ab", [("a", 10)]) == {"a": (1, 10), "b": (1, -1)}
    assert run(host, 1, "ab", []) == {"a": (0, 10), "b": (0, -1)}
    assert run(host, 2, "ab", [("b", 5), ("a", 7)]) == {"a": (2, 7), "b": (2, 5)}
    assert run(host, 3, "", [("b", 6)]) == {}
    assert run(host, 4, "b", []) == {"b": (0, 6)}


def test_an_epoch_that_runs_again_has_the_rules_of_its_start(opened: Callable[..., Host]) -> None:
    host = opened()
    run(host, 0, "a", [("a", 10)])
    for attempt in (5, 6):
        assert run(host, 1, "ab", [("b", attempt)], attempt) == {"a": (1, 10), "b": (1, attempt)}
    assert run(opened(), 1, "ab", [], attempt=7) == {"a": (0, 10), "b": (0, -1)}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_a_run_at_another_parallelism_has_the_rules_of_all(
    opened: Callable[..., Host], parallelism: int
) -> None:
    for subtask in range(3):
        run(opened(parallelism=3, subtask=subtask), 0, "ab", [("a", 10), ("b", 5)])
    seen: Totals = {}
    for subtask in range(parallelism):
        host = opened(parallelism=parallelism, subtask=subtask, run_id="run-2")
        seen |= run(host, 1, "ab", [])
    assert seen == {"a": (0, 10), "b": (0, 5)}


def test_rules_of_one_epoch_come_in_the_same_order_to_all(opened: Callable[..., Host]) -> None:
    rules = [("a", most) for most in (3, 1, 9, 4)]
    for subtask in range(2):
        host = opened(parallelism=2, subtask=subtask)
        run(host, 0, "", rules)
    limits = [run(opened(parallelism=2, subtask=s), 1, "a", []) for s in range(2)]
    assert {limit for seen in limits for _, limit in seen.values()} == {9}


class GoesAstray(Limits):
    """A processor that puts another value in each subtask."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        state["limits"].updateValue(("a",), (self._subtask,))


def test_a_difference_is_found_in_the_next_epoch(opened: Callable[..., Host]) -> None:
    hosts = [opened(GoesAstray(s // 2), parallelism=3, subtask=s) for s in range(3)]
    for host in hosts:
        run(host, 0, "", [("a", 1)])
    message = r"'limits' is not the same.*\[0, 1\] and subtasks \[2\] differ"
    for host in (hosts[0], opened(parallelism=1, run_id="run-2")):
        with pytest.raises(BroadcastStateError, match=message):
            run(host, 1, "a", [])


class WritesForKeys(Limits):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._limits.updateValue(key, (1,))
        return iter(())


def test_the_keyed_side_cannot_change_a_broadcast_state(opened: Callable[..., Host]) -> None:
    host = opened(WritesForKeys())
    with pytest.raises(UnsupportedOperationError, match="'limits' can be read here"):
        run(host, 0, "a", [("a", 10)])
    assert run(opened(), 0, "a", [], attempt=5) == {"a": (0, -1)}


class Yields(Limits):
    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> Any:
        yield Row(key="a", rows=1, total=1)


def test_the_broadcast_side_has_no_output(opened: Callable[..., Host]) -> None:
    with pytest.raises(ConfigurationError, match=r"must return None.*take that out"):
        run(opened(Yields()), 0, "a", [("a", 10)])


def test_a_processor_may_leave_rows_unread(opened: Callable[..., Host]) -> None:
    class ReadsOne(Limits):
        def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
            super().handleBroadcastRows(name, iter([next(rows)]), state)

    assert run(opened(ReadsOne()), 0, "ab", [("b", 2), ("a", 1)]) == {"a": (1, 1), "b": (1, -1)}
