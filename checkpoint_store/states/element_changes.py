"""What versions did to list and map states: rows of whole lists and maps, from rows of elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from checkpoint_store.files.state_file import DELETE, OP, PUT
from checkpoint_store.states.element_fold import fold_elements, whole_collections
from checkpoint_store.states.key_codes import key_codes
from checkpoint_store.states.row_fold import COMMIT_VERSION, FoldRules, distinct_keys, flat_schema
from checkpoint_store.states.state_history import StateShape


def whole_rows(base: pa.Table, rows: pa.Table, shape: StateShape) -> tuple[pa.Table, pa.Table]:
    """What `row_fold.fold_changes` takes, for the lists or maps that rows of elements make up.

    `base`, `rows`: as there, but of elements. A version's row of a key has the whole list or map
    that the version left, or deletes the key.
    """
    key_names = flat_schema(shape).names[:-1]
    state = fold_elements(base, key_names)
    whole_base = _puts(state, shape)
    outcomes = [_of_version(whole_base.slice(0, 0), 0)]
    versions = rows[COMMIT_VERSION].to_numpy()
    elements = rows.drop_columns([COMMIT_VERSION])
    for version in np.unique(versions):
        added = elements.filter(pa.array(versions == version))
        keys = distinct_keys(added, key_names)
        before, of_others = _parted(state, keys, key_names)
        after = fold_elements(_joined([before, added]), key_names)
        outcome = _joined([_puts(after, shape), _deletes(keys, after, shape)])
        outcomes.append(_of_version(outcome, int(version)))
        state = _joined([of_others, after])
    return whole_base, _joined(outcomes)


def whole_rules(shape: StateShape) -> FoldRules:
    """The rules of the rows that `whole_rows` returns."""
    *key_names, name = flat_schema(shape).names
    return FoldRules(tuple(key_names), (name,))


def _puts(elements: pa.Table, shape: StateShape) -> pa.Table:
    """A row for each key that has elements."""
    whole = whole_collections(elements, shape.kind, flat_schema(shape))
    return whole.append_column(OP, pa.repeat(pa.scalar(PUT), whole.num_rows))


def _deletes(keys: pa.Table, elements: pa.Table, shape: StateShape) -> pa.Table:
    """A row for each of the keys that has no elements."""
    *key_names, name = flat_schema(shape).names
    _, gone = _parted(keys, elements, key_names)
    nothing = pa.nulls(gone.num_rows, flat_schema(shape).field(name).type)
    deleted = gone.select(key_names).append_column(name, nothing)
    return deleted.append_column(OP, pa.repeat(pa.scalar(DELETE), gone.num_rows))


def _parted(rows: pa.Table, keys: pa.Table, key_names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Those of `rows` whose key is in `keys`, and the others."""
    together = pa.concat_tables([table.select([*key_names, OP]) for table in (keys, rows)])
    # Codes count keys as they appear, so those of `keys` are the ones up to its last new key.
    codes = key_codes(together, key_names)
    is_in = codes[keys.num_rows :] <= codes[: keys.num_rows].max(initial=-1)
    return rows.filter(pa.array(is_in)), rows.filter(pa.array(~is_in))


def _of_version(rows: pa.Table, version: int) -> pa.Table:
    numbers = pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)
    return rows.append_column(COMMIT_VERSION, numbers)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive")
