"""Rows of state files folded to a state, or to the changes of versions. Pure, and vectorised.

Rows are a table with columns that `flat_rows` makes from the rows of a file:

    key columns, value columns   with the names and types that users see
    _key_group, _op              as in the file; `_op` is put or delete
    _sequence                    if the state is sequenced
    _commit_version              int64, for changes only: the version that added the row

Rows are in the order in which they apply. Two keys are equal if all their columns are equal; null
equals null, and NaN equals NaN. The rules:

    plain          the last row of a key wins; a delete removes the key
    sequenced      a row is late, and changes nothing, if an earlier row of the key has a greater
                   sequence; of equal sequences the later row wins. Deletes have sequences, too, so
                   a state keeps its deletes as tombstones if more rows will be applied
    ignores_nulls  a null in a put keeps the column's former value; a delete removes all values of
                   the key

Rows of a list or map state are rows of elements, with the columns and rules of `element_fold`.

With `ignores_nulls`, a fold must begin with the first row of the state, because the folded put of a
key does not show whether a delete came before the put.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.evolved_columns import evolved
from checkpoint_store.files.spark_schema import parse_spark_schema
from checkpoint_store.files.state_file import (
    DELETE,
    KEY_GROUP_COLUMN,
    OP,
    PUT,
    STATE,
    STATE_METADATA,
)
from checkpoint_store.states.array_equality import same_values
from checkpoint_store.states.element_fold import (
    ELEMENT,
    EXPIRES,
    VALUE,
    element_fields,
    element_rows,
    fold_elements,
)
from checkpoint_store.states.key_codes import key_codes
from checkpoint_store.states.key_hashes import key_hashes
from checkpoint_store.states.key_order import rows_by_key
from checkpoint_store.states.state_history import StateShape

SEQUENCE = "_sequence"
CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
COMMIT_TIMESTAMP, COMMIT_WATERMARK = "_commit_timestamp", "_commit_watermark"
INSERT, PREIMAGE, POSTIMAGE = "insert", "update_preimage", "update_postimage"
ADDED_COLUMNS = frozenset(
    {
        *(KEY_GROUP_COLUMN, STATE, OP, SEQUENCE),
        *(CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP, COMMIT_WATERMARK),
    }
)
"""Names that no column of a state has."""

_BASE_VERSION = -1

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FoldRules:
    """The columns that tell keys apart, and the rules by which a row of a key wins."""

    key_names: tuple[str, ...]
    value_names: tuple[str, ...]
    sequenced: bool = False
    ignores_nulls: bool = False
    has_elements: bool = False

    @property
    def names(self) -> list[str]:
        """The key columns, then the value columns."""
        return [*self.key_names, *self.value_names]


def fold_rules(shape: StateShape, schema: pa.Schema) -> FoldRules:
    """The rules of a state for rows with the columns of `schema`."""
    if shape.kind == "timers":
        return FoldRules(tuple(schema.names), ())
    values: Collection[str] = _value_fields(shape)
    if shape.has_elements:
        values = (ELEMENT, VALUE, EXPIRES)
    return FoldRules(
        tuple(name for name in schema.names if name not in values),
        tuple(name for name in schema.names if name in values),
        shape.sequenced,
        shape.ignores_nulls,
        shape.has_elements,
    )


def folded_schema(shape: StateShape) -> pa.Schema:
    """The columns by which a state is folded: `flat_schema`, or the columns of elements."""
    schema = flat_schema(shape)
    if not shape.has_elements:
        return schema
    keys = len(parse_spark_schema(shape.key_schema_json).fields)
    fields, in_files = list(schema), _value_fields(shape)
    values = [field.with_name(in_files[field.name]) for field in fields[keys:]]
    return pa.schema([*fields[:keys], *element_fields(shape.kind, values)])


def flat_schema(shape: StateShape) -> pa.Schema:
    """All columns of a state, key columns first, with the names that users see."""
    keys = parse_spark_schema(shape.key_schema_json).fields
    values = parse_spark_schema(shape.value_schema_json).fields
    names = [*(name for name, _ in keys), *_value_fields(shape)]
    types = [field_type.arrow for _, field_type in (*keys, *values)]
    return pa.schema(list(zip(names, types, strict=True)))


def flat_rows(batch: pa.RecordBatch | pa.Table, shape: StateShape, schema: pa.Schema) -> pa.Table:
    """The rows of `shape.state` with the columns of `schema`, some or all of `folded_schema`.

    A column that the file does not have yet is null. A column of another type is cast.
    """
    rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    wanted = pc.equal(rows[STATE], shape.state)
    if not pc.all(wanted, min_count=0).as_py():
        rows = rows.filter(wanted)
    fields, row = _value_fields(shape), _struct_column(rows, shape.state)
    if shape.has_elements:
        return element_rows(rows, shape.kind, row, schema)
    columns: list[Any] = []
    for field in schema:
        if field.name in fields:
            column = _struct_field(row, fields[field.name])
        else:
            column = rows[field.name] if field.name in rows.column_names else None
        if column is None:
            column = pa.nulls(rows.num_rows, field.type)
        columns.append(evolved(column, field.type))
    names = [*schema.names, KEY_GROUP_COLUMN, OP]
    columns += [rows[KEY_GROUP_COLUMN], rows[OP]]
    if shape.sequenced:
        columns.append(rows[SEQUENCE])
        names.append(SEQUENCE)
    return pa.Table.from_arrays(columns, names)


def concat_rows(tables: Sequence[pa.Table], shape: StateShape, schema: pa.Schema) -> pa.Table:
    """Join tables of `flat_rows`, perhaps none, to one table; the widest type of `_sequence` is
    taken."""
    fields = [*schema, pa.field(KEY_GROUP_COLUMN, pa.int32()), pa.field(OP, pa.string())]
    if shape.sequenced:
        fields.append(pa.field(SEQUENCE, pa.null()))
    return pa.concat_tables(
        [pa.schema(fields).empty_table(), *tables], promote_options="permissive"
    )


def fold_state(rows: pa.Table, rules: FoldRules, keep_tombstones: bool = False) -> pa.Table:
    """Fold rows to one row for each key, or for each element, in the order of the winning rows.

    The result has the key columns and the value columns. With `keep_tombstones` the result has all
    columns of `rows`, and rows of deleted keys, too; folding it with later rows equals folding all
    rows.
    """
    if rules.has_elements:
        folded = fold_elements(rows, rules.key_names, keep_tombstones)
    else:
        folded = (_merged if rules.ignores_nulls else _winners)(rows, rules)
    if keep_tombstones:
        return folded
    return folded.filter(pc.equal(folded[OP], PUT)).select(rules.names)


def fold_changes(
    base: pa.Table, rows: pa.Table, rules: FoldRules, names: Collection[str] | None = None
) -> pa.Table:
    """The changes that each version in `rows` made to `base`: columns of the state, `_change_type`,
    `_commit_version`. `names`: the wanted columns of the state; None means all.

    `base` has the rows of the state before these versions, with tombstones. `base` may have rows of
    keys that are not in `rows`: such rows have no effect. `rows` are in the order of their
    versions. The change of a key in a version is one of

        insert                              the key was not there
        update_preimage, update_postimage   a value has changed
        delete                              with the values that the key had
        (nothing)                           the key is as before

    The changes are ordered by version, and within a version by the last row of each key. A preimage
    comes right before its postimage.
    """
    before = pa.repeat(pa.scalar(_BASE_VERSION, pa.int64()), base.num_rows)
    everything = pa.concat_tables(
        [base.append_column(COMMIT_VERSION, before), rows], promote_options="permissive"
    )
    sequence = [SEQUENCE] if rules.sequenced else []
    everything = everything.select([*rules.names, OP, *sequence, COMMIT_VERSION])
    timeline = _timeline(everything, rules)
    shown = [name for name in rules.names if names is None or name in names]
    return _images(timeline, _events(timeline), shown)


def fold_upserts(rows: pa.Table, rules: FoldRules) -> pa.Table:
    """The changes of one version, computed from its rows only: columns of the state,
    `_change_type`.

    The state before the version is not known. So every put is an update_postimage, even a put that
    changes nothing, and every delete is a delete with null values. For plain states only, because
    in other states the result for a key depends on earlier rows, too. The changes have the order of
    the winning rows, each the last row of its key.
    """
    assert not rules.sequenced, "which rows are late depends on those before"
    assert not rules.ignores_nulls, "what a null keeps depends on the rows before"
    winners = rows
    if not _have_distinct_keys(rows, rules.key_names):
        winners = _winners(rows, rules)
    puts = pc.equal(winners[OP], PUT)
    if pc.all(puts, min_count=0).as_py():
        kinds = pa.chunked_array([pa.repeat(pa.scalar(POSTIMAGE), winners.num_rows)])
    else:
        kinds = pc.if_else(puts, POSTIMAGE, DELETE)
    return winners.select(rules.names).append_column(CHANGE_TYPE, kinds)


def _have_distinct_keys(rows: pa.Table, key_names: Sequence[str]) -> bool:
    """True if hashes show that all keys differ, which is usual within one version. Comparing hashes
    is faster than comparing keys. If two keys have one hash, the result is False, and the caller
    compares the keys."""
    hashes = np.sort(key_hashes(rows, key_names))
    return bool((hashes[1:] != hashes[:-1]).all())


def are_of_keys(rows: pa.Table, keys: pa.Table, key_names: Sequence[str]) -> Any:
    """For each row: True if the key of the row is in `keys`. Both tables have the columns
    `key_names` and `_op`."""
    keys_then_rows = pa.concat_tables([table.select([*key_names, OP]) for table in (keys, rows)])
    # Codes number keys in the order of appearance, so the keys of `keys` have the lowest codes.
    codes = key_codes(keys_then_rows, key_names)
    last_code = codes[: keys.num_rows].max(initial=-1)
    return pa.array(codes[keys.num_rows :] <= last_code)


def distinct_keys(rows: pa.Table, key_names: Sequence[str]) -> pa.Table:
    """One row of each key, with the columns `key_names` and `_op`. The result has `_op` because
    `key_names` may be empty, and a table without columns has no rows."""
    codes = key_codes(rows, key_names)
    # Codes ascend in the order of appearance, so a key is new where the greatest code grows.
    highest = np.maximum.accumulate(codes)
    first = np.diff(highest, prepend=-1) > 0
    return rows.select([*key_names, OP]).filter(pa.array(first))


@dataclass(frozen=True)
class _Timeline:
    """The rows sorted by key, and the rows of a key in the order in which rows apply.

    Each array has an element for each row in this order. An index into the arrays is a *moment*:
    the state of a key right after the row was applied. `order`: the row's place in `rows`. `first`:
    the row is the first of its key. `counts`: the row is not late. `puts`: the row is not a delete.
    `decided`: the moment of the key's last row so far that is not late; this row decides the key's
    state. `born`: the moment of the key's last delete so far that is not late, or else of the key's
    first row; values from before this moment are gone.

        moment     0    1    2    3    4     5
        key        a    a    a    a    b     b
        row        put  del  put  put  put   del
                                       seq 2 seq 1
        counts     yes  yes  yes  yes  yes   no, the row is late
        decided    0    1    2    3    4     4
        born       0    1    1    1    4     4
    """

    rows: pa.Table
    rules: FoldRules
    order: _Numbers
    first: _Flags
    counts: _Flags
    puts: _Flags

    @cached_property
    def decided(self) -> _Numbers:
        """For each moment (the index of a row, see the class), the index of the row that decides
        the key's state at this moment: the key's last row up to here that is not late."""
        return self._latest(self.counts)

    @cached_property
    def born(self) -> _Numbers:
        """For each moment, the moment since which the key's values are kept: the key's first row,
        or the key's last delete."""
        return self._latest(self.first | (self.counts & ~self.puts))

    def present(self, moments: _Numbers) -> _Flags:
        """True at moments when the key exists."""
        return self.puts[self.decided[moments]]

    def at(self, moments: _Numbers, names: Iterable[str]) -> list[Any]:
        """The values of columns at some moments."""
        places = pa.array(self._places[moments])
        return [
            self._kept(moments, name) if self._keeps(name) else self.rows[name].take(places)
            for name in names
        ]

    @cached_property
    def _places(self) -> _Numbers:
        """For each moment, the place of the row that decides the key's state."""
        return self.order if self.counts.all() else self.order[self.decided]

    def _keeps(self, name: str) -> bool:
        return self.rules.ignores_nulls and name in self.rules.value_names

    def _kept(self, moments: _Numbers, name: str) -> Any:
        """The values of a column at some moments: the value last written, ignoring nulls, because
        a null keeps the former value. Null if no value was written since the key was born."""
        column: Any = self.rows[name]
        valid = pc.is_valid(column).to_numpy()[self.order]
        # The last row that wrote the column. A row of another key, or from before the last delete,
        # comes before the key was born, and means that there is no value.
        written = self._latest(self.counts & valid, nothing=-1)[moments]
        absent = written < self.born[moments]
        return column.take(pa.array(self.order[written], mask=absent))

    def _latest(self, flags: _Flags, nothing: int = 0) -> _Numbers:
        """For each moment, find the last moment so far that has the flag; `nothing` if there is no
        such moment. The found moment may belong to another key, unless the first row of each key
        has the flag."""
        return np.maximum.accumulate(np.where(flags, np.arange(len(flags)), nothing))


@dataclass(frozen=True, slots=True)
class _Events:
    """All pairs of a version and a key for which the version has rows. Each array has an element
    for each pair, in the order of the pairs' last rows. `after`, `before`: the moments of the key
    after and before the version. `existed`: the key exists before the version. `exists`: the key
    exists after the version. `versions`: the version."""

    after: _Numbers
    before: _Numbers
    existed: _Flags
    exists: _Flags
    versions: _Numbers


def _timeline(rows: pa.Table, rules: FoldRules) -> _Timeline:
    rows = rows.combine_chunks()
    order, first = rows_by_key(rows, rules.key_names)
    counts = np.ones(len(order), np.bool_)
    if rules.sequenced:
        ranks = _ranks(rows[SEQUENCE])[order]
        # The number of a key weighs more than all ranks, and numbers of keys ascend, so the
        # greatest number so far is always of the same key. A row counts if its number is not below
        # the greatest; equal numbers count, too.
        placed = np.cumsum(first) * (ranks.max(initial=0) + 1) + ranks
        counts = placed == np.maximum.accumulate(placed)
    puts = pc.equal(rows[OP], PUT).to_numpy()[order]
    return _Timeline(rows, rules, order, first, counts, puts)


def _winners(rows: pa.Table, rules: FoldRules) -> pa.Table:
    """The winning row of each key: the last row with the greatest sequence."""
    codes = key_codes(rows, rules.key_names)
    # The last row that counts is the last row of the greatest sequence: a row of a smaller sequence
    # comes before the first row of the greatest sequence, or is late. Places are below len(codes),
    # so no scores are equal.
    places = np.arange(len(codes))
    scores = _ranks(rows[SEQUENCE]) * len(codes) + places if rules.sequenced else places
    best = np.full(codes.max(initial=-1) + 1, -1)
    np.maximum.at(best, codes, scores)
    return rows.filter(pa.array(best[codes] == scores))


def _merged(rows: pa.Table, rules: FoldRules) -> pa.Table:
    timeline = _timeline(rows, rules)
    last = np.flatnonzero(_ends(timeline.first))
    moments = last[np.argsort(timeline.order[timeline.decided[last]])]
    return pa.Table.from_arrays(timeline.at(moments, rows.column_names), schema=rows.schema)


def _events(timeline: _Timeline) -> _Events:
    versions = _numbers(timeline.rows[COMMIT_VERSION])[timeline.order]
    starts = timeline.first | (np.diff(versions, prepend=versions[:1]) != 0)
    after = np.flatnonzero(_ends(starts))
    # The moment before an event is the moment after the preceding event, if both are of the same
    # key. The base comes first in each key, so the base is only ever the moment before, not an
    # event.
    before = np.roll(after, 1)
    exists = timeline.present(after)
    existed = ~timeline.first[starts] & np.roll(exists, 1)
    of_versions = np.flatnonzero(versions[after] != _BASE_VERSION)
    in_turn = np.full(len(versions), -1)
    in_turn[timeline.order[after[of_versions]]] = of_versions
    places = np.flatnonzero(in_turn >= 0)
    events = in_turn[places]
    of_places = _numbers(timeline.rows[COMMIT_VERSION])[places]
    return _Events(after[events], before[events], existed[events], exists[events], of_places)


def _ends(starts: _Flags) -> _Flags:
    """Flag the last element of each group of neighbours. `starts`: flags of the first elements."""
    return np.append(starts[1:], np.ones(min(len(starts), 1), np.bool_))


def _images(timeline: _Timeline, events: _Events, names: Sequence[str]) -> pa.Table:
    """Build the change rows of the events: deletes, preimages, postimages and inserts. `names`: the
    columns of the state."""
    differs = events.existed != events.exists
    updated = np.flatnonzero(events.existed & events.exists)
    old, new = (
        timeline.at(moments[updated], timeline.rules.value_names)
        for moments in (events.before, events.after)
    )
    for before, after in zip(old, new, strict=True):
        differs[updated] |= ~same_values(before.combine_chunks(), after.combine_chunks())
    # Two rows at most for each event: what the key had before, and what the key has afterwards.
    shown = np.stack([differs & events.existed, differs & events.exists], 1)
    moments = np.stack([events.before, events.after], 1)[shown]
    kinds = np.stack([np.where(events.exists, 1, 0), np.where(events.existed, 2, 3)], 1)[shown]
    columns = timeline.at(moments, names)
    columns.append(pa.array([DELETE, PREIMAGE, POSTIMAGE, INSERT]).take(pa.array(kinds)))
    columns.append(pa.array(np.repeat(events.versions, shown.sum(1)), pa.int64()))
    return pa.Table.from_arrays(columns, [*names, CHANGE_TYPE, COMMIT_VERSION])


def _ranks(column: Any) -> _Numbers:
    """Number the values 0, 1 … in ascending order; equal values have equal numbers."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return _numbers(pc.rank(column, sort_keys="ascending", tiebreaker="dense")) - 1


def _numbers(column: Any) -> _Numbers:
    numbers: _Numbers = column.to_numpy().astype(np.int64)
    return numbers


@lru_cache(maxsize=64)
def _value_fields(shape: StateShape) -> dict[str, str]:
    """Map each value column from the name that users see to the name in the file. `shape.columns`
    has the users' names in the order of the value schema."""
    keys = {field["name"] for field in json.loads(shape.key_schema_json)["fields"]}
    fields = [field["name"] for field in json.loads(shape.value_schema_json)["fields"]]
    return dict(zip((name for name in shape.columns if name not in keys), fields, strict=True))


def _struct_column(rows: pa.Table, state: str) -> Any:
    for index, field in enumerate(rows.schema):
        if (field.metadata or {}).get(STATE_METADATA) == state.encode():
            return rows.column(index)
    return None


def _struct_field(row: Any, name: str) -> Any:
    """A field of the structs in `row`; None if there is no such field."""
    index = -1 if row is None else row.type.get_field_index(name)
    return None if index < 0 else pc.struct_field(row, [index])
