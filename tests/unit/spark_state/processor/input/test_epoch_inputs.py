"""A table's keyed rows and control rows are told apart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_state.processor.input.control_rows import control_key_group, subtask_of_control
from spark_state.processor.input.epoch_inputs import KEYED_ROWS, EpochInputs
from spark_state.processor.input.key_grouping import InputLayout

LAYOUT = InputLayout(("key", "value"), (0,))
INPUTS = EpochInputs(LAYOUT, tells_time=True)


def table_of(*rows: tuple[str | None, int | None, int], batch_ms: int = 77) -> pa.Table:
    keys, values, key_groups = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.int64()),
            "_cowstate_key_group": pa.array(key_groups, pa.int32()),
            "_cowstate_batch_ms": pa.array([batch_ms] * len(rows), pa.int64()),
        }
    )


CONTROL = (None, None, control_key_group(2))


def keyed_rows(inputs: EpochInputs, table: pa.Table) -> list[str]:
    return inputs.by_name(table)[KEYED_ROWS].table.column("key").to_pylist()


def test_control_rows_tell_the_time_and_are_no_keyed_rows() -> None:
    table = table_of(("a", 1, 0), CONTROL, ("b", 2, 5))
    assert INPUTS.batch_ms(table) == 77
    assert keyed_rows(INPUTS, table) == ["a", "b"]
    assert keyed_rows(INPUTS, table_of(CONTROL)) == []
    assert INPUTS.batch_ms(table_of(CONTROL)) == 77


def test_rows_without_control_rows_are_not_copied() -> None:
    table = table_of(("a", 1, 0), ("b", 2, 5))
    assert INPUTS.by_name(table)[KEYED_ROWS].table is table


@pytest.mark.parametrize("table", [pa.table({}), table_of(("a", 1, 0)).slice(1)])
def test_without_rows_nobody_tells_the_time(table: pa.Table) -> None:
    assert INPUTS.batch_ms(table) is None
    assert INPUTS.by_name(table)[KEYED_ROWS].table is table


def test_a_single_input_tells_no_time() -> None:
    table = table_of(("a", 1, 0))
    assert EpochInputs(LAYOUT).batch_ms(table) is None
    assert keyed_rows(EpochInputs(LAYOUT), table) == ["a"]


@pytest.mark.parametrize("subtask", [0, 1, 32_767])
def test_a_control_row_s_key_group_says_whose_it_is(subtask: int) -> None:
    assert subtask_of_control(control_key_group(subtask)) == subtask
    assert subtask_of_control(subtask) is None
