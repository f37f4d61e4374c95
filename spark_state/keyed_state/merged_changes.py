"""Merge of several changelogs into one changelog, with Arrow and NumPy. Pure.

The last row of each value, element or timer stays, and its earlier rows are left out. A row that
deletes all elements of a key replaces all earlier rows of the key in the same state. Rows that
delete are kept, because the deleted entries may be in older files. So applying the merged changelog
gives the same state as applying all changelogs in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from checkpoint_store.files.element_columns import EXPIRY, LIST_POSITION, USER_KEY
from checkpoint_store.files.state_file import (
    DELETE,
    KEY_GROUP_COLUMN,
    OP,
    STATE,
)
from checkpoint_store.states.element_fold import are_last
from checkpoint_store.states.key_codes import key_codes, value_codes
from spark_state.keyed_state.state_rows import names_of_columns, sorted_by_key, state_columns
from spark_state.state_descriptor import StateKind

# The type stubs of pyarrow.compute reject valid arguments, such as chunked arrays.
pc: Any = pyarrow.compute

# Prefixes of the names of columns.
_STATE, _OTHER = "state ", "other "
_ELEMENT_NAMES: Mapping[StateKind, str] = {
    "list": LIST_POSITION,
    "map": USER_KEY,
    "timers": EXPIRY,
}


def merged_changes(
    key_names: Sequence[str], kinds: Mapping[str, StateKind], changelogs: Sequence[pa.Table]
) -> pa.Table:
    """Return the rows of the merged changelog, sorted as in a file.

    `key_names`: names of the key columns. `kinds`: the kind of each state, by name. `changelogs`:
    in the order in which they are applied. Raises KeyError for a state without a kind.
    """
    fixed = [*key_names, KEY_GROUP_COLUMN, STATE, OP]
    by_state = [_named_by_state(table, len(fixed)) for table in changelogs]
    rows = pa.concat_tables(by_state, promote_options="permissive").combine_chunks()
    states = [name.removeprefix(_STATE) for name in rows.column_names[len(fixed) :]]
    elements, clears = _elements(rows, {state: kinds[state] for state in states})
    rows = rows.rename_columns([*fixed, *names_of_columns(fixed, states)])
    owners = key_codes(rows, [STATE, *key_names])
    pairs = owners * (elements.max(initial=0) + 1) + elements
    together = value_codes(pa.chunked_array([pa.array(pairs)]))
    last = rows.filter(pa.array(are_last(owners, together, clears)))
    return sorted_by_key(last, key_names)


def _named_by_state(table: pa.Table, number_fixed: int) -> pa.Table:
    """Rename the columns so that a state has the same column name in all files: "state " and the
    state's name. `number_fixed`: number of the columns before the columns of states. The names of
    these columns get the prefix "other "."""
    others = [f"{_OTHER}{name}" for name in table.column_names[:number_fixed]]
    states = [f"{_STATE}{column.name}" for column in state_columns(table.schema)]
    return table.replace_schema_metadata(None).rename_columns([*others, *states])


def _elements(
    rows: pa.Table, kinds: Mapping[str, StateKind]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return two arrays with an item for each row.

    - The number of the row's element; equal elements of a state have equal numbers.
    - True if the row deletes all elements of the key.
    """
    numbers = np.zeros(rows.num_rows, np.int64)
    clears = np.zeros(rows.num_rows, bool)
    deletes = pc.equal(rows[_OTHER + OP], DELETE).to_numpy()
    for state, kind in kinds.items():
        if kind not in _ELEMENT_NAMES:
            continue
        struct = rows[_STATE + state]
        index = struct.type.get_field_index(_ELEMENT_NAMES[kind])
        names = pc.struct_field(struct, [index])
        is_of_state = pc.equal(rows[_OTHER + STATE], state).to_numpy()
        numbers[is_of_state] = value_codes(names)[is_of_state]
        clears |= is_of_state & deletes & pc.is_null(names).to_numpy()
    return numbers, clears
