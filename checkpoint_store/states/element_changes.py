"""Conversion of rows of elements to rows of whole lists, maps and values, to compute changes.

An element expires with the first version whose batch time reaches the element's time of expiry,
even if no version removes the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.state_file import DELETE, OP, PUT
from checkpoint_store.states.element_fold import (
    EXPIRES,
    fold_elements,
    live_elements,
    whole_collections,
)
from checkpoint_store.states.row_fold import (
    COMMIT_VERSION,
    FoldRules,
    are_of_keys,
    distinct_keys,
    flat_schema,
)
from checkpoint_store.states.state_history import StateShape

VersionTime = tuple[int, int | None]
"""A version, and the time at which its batch was planned (ms since 1970; None if not known)."""


def whole_rows(
    base: pa.Table, rows: pa.Table, shape: StateShape, base_ms: int | None, times: list[VersionTime]
) -> tuple[pa.Table, pa.Table]:
    """Build the arguments of `row_fold.fold_changes` from rows of elements.

    `base`, `rows`: as in `fold_changes`, but with rows of elements. If elements expire, `base` is
    the whole state. `base_ms`: the time of the base. `times`: the times of all versions, in order.
    The row of a key in a version has all elements that the key has after the version, or deletes
    the key.
    """
    key_names = column_names(shape.key_schema_json)
    state = live_elements(fold_elements(base, key_names), base_ms)
    whole_base = _puts(state, shape)
    outcomes = [_of_version(whole_base.slice(0, 0), 0)]
    versions, elements = rows[COMMIT_VERSION], rows.drop_columns([COMMIT_VERSION])
    for version, now_ms in times:
        added = elements.filter(pc.equal(versions, version))
        touched = _joined([added, _expired(state, now_ms)])
        if not touched.num_rows:
            continue
        keys = distinct_keys(touched, key_names)
        before, of_others = _parted(state, keys, key_names)
        after = live_elements(fold_elements(_joined([before, added]), key_names), now_ms)
        outcome = _joined([_puts(after, shape), _deletes(keys, after, shape)])
        outcomes.append(_of_version(outcome, version))
        state = _joined([of_others, after])
    return whole_base, _joined(outcomes)


def whole_rules(shape: StateShape) -> FoldRules:
    """The rules for the rows that `whole_rows` returns."""
    names, keys = flat_schema(shape).names, len(column_names(shape.key_schema_json))
    return FoldRules(tuple(names[:keys]), tuple(names[keys:]))


def _expired(state: pa.Table, now_ms: int | None) -> pa.Table:
    if now_ms is None:
        return state.slice(0, 0)
    return state.filter(pc.fill_null(pc.less_equal(state[EXPIRES], now_ms), False))


def _puts(elements: pa.Table, shape: StateShape) -> pa.Table:
    whole = whole_collections(elements, shape.kind, flat_schema(shape))
    return whole.append_column(OP, pa.repeat(pa.scalar(PUT), whole.num_rows))


def _deletes(keys: pa.Table, elements: pa.Table, shape: StateShape) -> pa.Table:
    """A delete row for each key of `keys` without elements."""
    key_names, schema = column_names(shape.key_schema_json), flat_schema(shape)
    _, gone = _parted(keys, elements, key_names)
    deleted = gone.select([*key_names, OP])
    deleted = deleted.set_column(
        deleted.column_names.index(OP), OP, pa.repeat(pa.scalar(DELETE), gone.num_rows)
    )
    missing: Any = schema.empty_table().append_column(OP, pa.array([], pa.string()))
    return _joined([missing, deleted])


def _parted(rows: pa.Table, keys: pa.Table, key_names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Split `rows`: rows with a key in `keys`, and rows without."""
    are_in = are_of_keys(rows, keys, key_names)
    return rows.filter(are_in), rows.filter(pc.invert(are_in))


def _of_version(rows: pa.Table, version: int) -> pa.Table:
    numbers = pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)
    return rows.append_column(COMMIT_VERSION, numbers)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive")
