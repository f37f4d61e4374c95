"""List and map states agree with plain lists and dicts that are copied at every step.

A script runs epochs: calls on the states of a few keys, then a seal, a rollback, or neither. Sealed
epochs may be undone, and snapshots overlap all steps. The changes of an epoch, applied to an older
copy, must give the backend's content. A snapshot must give its earlier content, also when two
subtasks share its key groups.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import column_schema, state_descriptor
from spark_state.state_descriptor import StateKind
from tests.support.operators.snapshot_tables import tables_of

NAN = math.nan
GROUPS = KeyGroupRange(0, 3)
VALUE = StructType([StructField("n", LongType()), StructField("tags", ArrayType(DoubleType()))])
USER_KEY = StructType([StructField("k", DoubleType())])
LIST, MAP = "items", "counts"

State = dict[str, dict[int, Any]]
values = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.lists(st.sampled_from([None, NAN, 1.5]), max_size=2),
)
user_keys = st.tuples(st.sampled_from([None, NAN, 0.0, 1.0, 2.0]))  # iterated in another order
calls = st.one_of(
    st.tuples(st.sampled_from(["put", "appendList"]), st.lists(values, max_size=3)),
    st.tuples(st.just("appendValue"), values),
    st.tuples(st.just("updateValue"), user_keys, values),
    st.tuples(st.just("removeKey"), user_keys),
    st.tuples(st.just("look"), user_keys),
    st.tuples(st.sampled_from(["clear list", "clear map", "snapshot"])),
)
steps = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 4), st.lists(calls, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["seal", "seal", "rollback", "undo", "snapshot", "read", "release"])),
)


def backend_of(groups: KeyGroupRange) -> tuple[HeapKeyedStateBackend, Any, Any]:
    """Build a backend with its list state and its map state."""
    keys = KeyColumns(("key",), (pa.int64(),), ("long",))
    heap = HeapKeyedStateBackend(groups, keys, STATE_FORMS)

    def state(kind: StateKind, name: str, *schemas: StructType) -> Any:
        return heap.state(state_descriptor(name, kind, column_schema(kind, name, schemas).json()))

    return heap, state("list", LIST, VALUE), state("map", MAP, USER_KEY, VALUE)


def contents(backend: tuple[HeapKeyedStateBackend, Any, Any], keys: range = range(5)) -> State:
    heap, lists, maps = backend
    state: State = {LIST: {}, MAP: {}}
    for key in keys:
        if key % 4 not in heap.key_groups:
            continue
        heap.set_current_key((key,), key % 4)
        if lists.exists():
            state[LIST][key] = list(lists.get())
        if maps.exists():
            state[MAP][key] = dict(maps.iterator())
    return state


def applied(*tables: pa.Table, halves: bool = False) -> State:
    """The state after applying files to empty states, read by one subtask or by two."""
    state: State = {LIST: {}, MAP: {}}
    for groups in (KeyGroupRange(0, 1), KeyGroupRange(2, 3)) if halves else (GROUPS,):
        backend = backend_of(groups)
        for table in tables:
            within = [group in groups for group in table["_key_group"].to_pylist()]
            backend[0].apply(table.filter(pa.array(within, pa.bool_())).to_batches())
        for name, states in contents(backend).items():
            state[name] |= states
    return state


@dataclass
class Script:
    """A script with its backend, the expected state, and the states for a possible undo."""

    backend: tuple[HeapKeyedStateBackend, Any, Any] = field(
        default_factory=lambda: backend_of(GROUPS)
    )
    now: State = field(default_factory=lambda: {LIST: {}, MAP: {}})
    base: State = field(default_factory=lambda: {LIST: {}, MAP: {}})
    sealed_from: State | None = None
    files: list[pa.Table] = field(default_factory=list)
    snapshots: list[tuple[FullSnapshot, State]] = field(default_factory=list)

    def run(self, step: tuple[Any, ...]) -> None:
        heap = self.backend[0]
        match step:
            case "call", key, calls:
                heap.set_current_key((key,), key % 4)
                for call in calls:
                    self.call(key, *call)
            case ("seal",):
                self.files.append(heap.changes())
                heap.seal()
                self.sealed_from, self.base = self.base, copy.deepcopy(self.now)
            case ("rollback",):
                heap.rollback()
                self.now = copy.deepcopy(self.base)
            case ("undo",) if self.sealed_from is not None:
                heap.rollback()
                heap.undo_sealed()
                self.files.pop()
                self.now, self.base = copy.deepcopy(self.sealed_from), self.sealed_from
                self.sealed_from = None
            case ("snapshot",):
                self.snapshots.append((heap.snapshot(), copy.deepcopy(self.now)))
            case ("read",) if self.snapshots:
                snapshot, held = self.snapshots.pop(0)
                assert repr_of(applied(*tables_of(snapshot), halves=True)) == repr_of(held)
            case ("release",) if self.snapshots:
                self.snapshots.pop()[0].release()
        heap.check_invariants()

    def call(self, key: int, name: str, *given: Any) -> None:
        _, lists, maps = self.backend
        if name == "snapshot":
            self.run((name,))
            return
        if name in ("put", "appendList", "appendValue", "clear list"):
            items = {"put": [], "clear list": []}.get(name, self.now[LIST].get(key, []))
            items = [*items, *(given if name == "appendValue" else (given or [[]])[0])]
            self._set(LIST, key, items)
            method = "clear" if name == "clear list" else name
            getattr(lists, method)(*given)
            return
        entries = dict(self.now[MAP].get(key, {}))
        if name == "updateValue":
            entries[given[0]] = given[1]
            maps.updateValue(*given)
        elif name == "look":
            assert maps.containsKey(*given) == (given[0] in entries)
            in_order = sorted(entries.items(), key=lambda entry: _place(entry[0]))
            assert repr(list(maps.iterator())) == repr(in_order)
        else:
            entries = {} if name == "clear map" else entries
            entries.pop(given[0] if given else None, None)
            getattr(maps, "clear" if name == "clear map" else name)(*given)
        self._set(MAP, key, dict(sorted(entries.items(), key=lambda entry: _place(entry[0]))))

    def _set(self, name: str, key: int, state: Any) -> None:
        if state:
            self.now[name][key] = state
        else:
            self.now[name].pop(key, None)


def _place(user_key: tuple[Any, ...]) -> int:
    return [None, 0.0, 1.0, 2.0].index(user_key[0]) if user_key[0] is not NAN else 4


def repr_of(state: State) -> str:
    """The state as text. NaN differs from NaN, but their texts are equal. The order of elements
    counts, the order of keys does not."""
    return repr(
        {name: sorted(states.items(), key=lambda entry: entry[0]) for name, states in state.items()}
    )


@given(st.lists(steps, max_size=25))
def test_states_are_as_plain_lists_and_dicts_would_be(script: list[tuple[Any, ...]]) -> None:
    running = Script()
    for step in script:
        running.run(step)
        if step[0] != "call":
            # As in an epoch, no other question comes between calls on one key.
            assert repr_of(contents(running.backend)) == repr_of(running.now)
    assert repr_of(contents(running.backend)) == repr_of(running.now)
    running.run(("rollback",))
    for halves in (False, True):
        assert repr_of(applied(*running.files, halves=halves)) == repr_of(running.base)
    for snapshot, held in running.snapshots:
        assert repr_of(applied(*tables_of(snapshot))) == repr_of(held)
