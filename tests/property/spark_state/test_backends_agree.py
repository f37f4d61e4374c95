"""The RocksDB backend and the heap backend give the same answers to the same random calls.

The scripts use states of every kind, with and without a time to live, and timers. The current key
changes only now and then, and time passes. Meanwhile the RocksDB backend is restored from its own
snapshots, or from the snapshots of two backends with a half of its key groups each.

The same scripts run on two heap backends, of which one is restored from its own snapshots, with all
values packed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_store.files.element_columns import LIST_POSITION, LIST_VALUE, MAP_VALUE
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.key_hashes import Hashes, key_hashes
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.heap import heap_keyed_state_backend, packed_entries
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from spark_state.state_descriptor import PROCESSING_TIMERS, StateDescriptor
from tests.support.operators.heap_table_model import check_packs
from tests.support.operators.keyed_state_backend_contract import KEY_GROUPS, KEYS, WrittenFiles
from tests.support.stores.stored_databases import StoredDatabases

_ROW = pa.struct([pa.field("n", pa.int64())])
_OF_KIND = {
    "value": _ROW,
    "list": pa.struct([pa.field(LIST_VALUE, pa.list_(_ROW))]),
    "map": pa.struct([pa.field(MAP_VALUE, pa.map_(_ROW, _ROW))]),
}
_TTL_MS = 3
NAMES = [f"{kind}{suffix}" for kind in _OF_KIND for suffix in ("", " for a while")]
TIMERS = StateDescriptor(PROCESSING_TIMERS, "timers", pa.struct([]), "{}")


def descriptor(name: str) -> StateDescriptor:
    kind: Any = name.split()[0]
    return StateDescriptor(name, kind, _OF_KIND[kind], "{}", _TTL_MS if " " in name else None)


numbers, keys = st.integers(0, 4), st.integers(0, 5)
of_kind = {
    "value": st.one_of(
        st.tuples(st.just("update"), numbers), st.tuples(st.sampled_from(["get", "clear"]))
    ),
    "list": st.one_of(
        st.tuples(st.sampled_from(["appendList", "put"]), st.lists(numbers, max_size=3)),
        st.tuples(st.sampled_from(["get", "exists", "clear"])),
    ),
    "map": st.one_of(
        st.tuples(st.just("updateValue"), numbers, numbers),
        st.tuples(st.sampled_from(["getValue", "removeKey"]), numbers),
        st.tuples(st.sampled_from(["iterator", "exists", "clear"])),
    ),
}
of_kind["timers"] = st.one_of(
    st.tuples(st.sampled_from(["register", "delete"]), numbers), st.tuples(st.just("list"))
)
other_calls = st.one_of(
    st.tuples(st.just("key"), keys),
    st.tuples(st.just("read ahead"), st.lists(keys, unique=True)),
    st.tuples(st.sampled_from(["seal", "seal", "undo", "rollback"])),
    st.tuples(st.sampled_from(["expire", "fire", "later", "write", "restore", "rescale"])),
    st.just(("forget",)),
)


def scripts(name: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Scripts of calls on one state, mixed with calls on the whole backend."""
    of_state = st.tuples(st.just(name), of_kind[name.split()[0]])
    return st.lists(st.one_of(of_state, of_state, other_calls), min_size=10, max_size=60)


@dataclass
class Backend:
    """A backend with all states. Each call returns a comparable value."""

    backend: KeyedStateBackend[Any]
    now_ms: int = 0
    key: int = 0
    can_undo: bool = False
    states: dict[str, Any] = field(default_factory=dict)
    stored: StoredDatabases | None = None
    held: tuple[StateHandle, ...] = ()
    is_repacked: bool = False

    def __post_init__(self) -> None:
        self.open_states()

    def open_states(self) -> None:
        """Begin to use the backend."""
        self.backend.begin(self.now_ms)
        self.states = {name: self.backend.state(descriptor(name)) for name in NAMES}
        self.states["timers"] = self.backend.state(TIMERS)
        self.run(("key", self.key))

    def run(self, call: tuple[Any, ...]) -> Any:
        backend = self.backend
        match call:
            case "key", number:
                self.key = number
                backend.set_current_key((number,), group_of(number))
            case "read ahead", numbers:
                backend.read_ahead([(n,) for n in numbers], [group_of(n) for n in numbers])
            case ("forget",):
                assert backend.bytes_on_heap() >= 0
                backend.forget_what_was_read()
            case ("seal",):
                backend.seal()
                self.can_undo = True
            case ("rollback",):
                backend.rollback()
            case ("undo",):
                backend.rollback()
                if self.can_undo:
                    backend.undo_sealed()
                self.can_undo = False
            case ("expire",):
                backend.remove_expired(100)
                self.run(("key", self.key))
            case ("fire",):
                return self.fire()
            case ("later",):
                self.now_ms += 1
                backend.begin(self.now_ms)
            case ("write",):
                return self.written()
            case ("restore" | "rescale") as how, *_:
                backend.rollback()
                self.can_undo = False
                if self.stored is not None:
                    self.restore(self.stored, how == "rescale")
                elif self.is_repacked:
                    self.repack()
            case state, (method, *arguments):
                return self.call(self.states[state], method, arguments)
        return None

    def restore(self, stored: StoredDatabases, rescale: bool) -> None:
        """Continue with a backend that is restored from snapshots of the current backend."""
        self.held = stored.snapshot(self.rocksdb, self.held)
        descriptors = self.backend.descriptors
        self.backend.close()
        if rescale:
            halves = [KeyGroupRange(4, 6), KeyGroupRange(7, 11)]
            written = [self.half(stored, half) for half in halves]
            self.held = tuple(handle for of_half in written for handle in of_half)
        self.backend, rest = stored.restored(self.held, descriptors, KEY_GROUPS)
        assert not rest, "a database was not restored as one"
        self.open_states()

    def repack(self) -> None:
        """Continue with a heap backend that is restored from a snapshot."""
        files = WrittenFiles()
        self.backend.snapshot().write(files)
        descriptors = self.backend.descriptors
        self.backend = HeapKeyedStateBackend(KEY_GROUPS, KEYS, PLAIN_FORMS)
        for state in descriptors:
            self.backend.open_table(state)
        self.backend.restore((rows.to_batches(3), None) for rows, _ in files.files)
        self.open_states()

    def half(self, stored: StoredDatabases, key_groups: KeyGroupRange) -> tuple[StateHandle, ...]:
        """The snapshot of a backend restored for some of the key groups."""
        narrowed = [replace(handle, key_groups=key_groups) for handle in self.held]
        backend, _ = stored.restored(narrowed, self.backend.descriptors, key_groups)
        try:
            return stored.snapshot(backend, narrowed)
        finally:
            backend.close()

    @property
    def rocksdb(self) -> RocksDBKeyedStateBackend:
        """The backend as a RocksDB backend."""
        assert isinstance(self.backend, RocksDBKeyedStateBackend)
        return self.backend

    def call(self, state: Any, method: str, arguments: list[Any]) -> Any:
        if not isinstance(arguments, list) or state is self.states["timers"]:
            given = arguments
        else:
            given = [[(n,) for n in a] if isinstance(a, list) else (a,) for a in arguments]
        result = getattr(state, method)(*given)
        return list(result) if isinstance(result, Iterable) else result

    def fire(self) -> Any:
        due = self.backend.due_timers(PROCESSING_TIMERS, self.now_ms)
        for timer in due:
            self.backend.set_current_key(timer.key, timer.key_group)
            self.states["timers"].delete(timer.time_ms)
        self.run(("key", self.key))
        return due

    def written(self) -> Any:
        """The rows of a snapshot after the epoch has ended."""
        self.backend.rollback()
        files = WrittenFiles()
        self.backend.snapshot(KeyGroupRange(5, 9)).write(files)
        return [sorted_rows(rows) for rows, _ in files.files]

    def seen(self) -> Any:
        """The visible content of the backend beside the states."""
        return (
            [self.content(key) for key in range(6)],
            sorted_rows(self.backend.changes()),
            len(self.backend),
            self.backend.next_timer_ms(),
            self.backend.number_of_timers(),
        )

    def content(self, key: int) -> Any:
        """The content of a key. The current key does not change."""
        self.backend.set_current_key((key,), group_of(key))
        content = []
        for name, state in self.states.items():
            looked_at = "iterator" if name.startswith("map") else "get"
            looked_at = "list" if name == "timers" else looked_at
            content.append(self.call(state, looked_at, []))
        self.run(("key", self.key))
        return content


def group_of(key: int) -> int:
    return KEY_GROUPS.start + key % len(KEY_GROUPS)


def sorted_rows(table: pa.Table) -> list[str]:
    """The rows as text, with ranks instead of positions for the elements of a key's list.

    Positions grow, and a backend may skip positions that an epoch gave and a rollback took back.
    """
    rows = table.to_pylist()
    places: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        held = row[row["_state"]]
        if held is not None and LIST_POSITION in held:
            places.setdefault((row["key"], row["_state"]), []).append(held)
    for of_list in places.values():
        numbers = sorted({held[LIST_POSITION] for held in of_list})
        for held in of_list:
            held[LIST_POSITION] = numbers.index(held[LIST_POSITION])
    return sorted(map(repr, rows))


@pytest.mark.parametrize("name", [*NAMES, "timers"])
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_both_backends_give_the_same_answers(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = StoredDatabases(folder=Path(folder))
        rocksdb = Backend(stored.new(KEY_GROUPS), stored=stored)
        both = Backend(HeapKeyedStateBackend(KEY_GROUPS, KEYS, PLAIN_FORMS)), rocksdb
        for call in data.draw(scripts(name)):
            heap, disk = (backend.run(call) for backend in both)
            assert disk == heap, call
            heap, disk = (backend.seen() for backend in both)
            assert disk == heap, call
        for backend in both:
            backend.backend.rollback()
        heap, disk = (list(backend.backend.entries_by_key_group()) for backend in both)
        assert disk == heap
        rocksdb.backend.close()


def one_hash(rows: pa.Table, _: Sequence[str]) -> Hashes:
    """Hash keys as badly as possible: all keys have the same hash."""
    return np.zeros(rows.num_rows, np.uint64)


@pytest.mark.parametrize("hashes", [key_hashes, one_hash])
def test_packed_values_give_the_same_answers(
    hashes: Callable[[pa.Table, Sequence[str]], Hashes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap_keyed_state_backend, "LEAST_PACKED_ROWS", 0)
    monkeypatch.setattr(packed_entries, "key_hashes", hashes)
    monkeypatch.setattr(packed_entries, "_MOST_BYTES", 200)  # so there are several packs

    @settings(max_examples=40, deadline=None)
    @given(scripts("value"))
    def agree(script: list[tuple[Any, ...]]) -> None:
        """The calls alone are compared, because a look at all keys would unpack everything."""
        plain, repacked = (
            Backend(HeapKeyedStateBackend(KEY_GROUPS, KEYS, PLAIN_FORMS), is_repacked=is_repacked)
            for is_repacked in (False, True)
        )
        for call in script:
            assert repacked.run(call) == plain.run(call), call
            assert len(repacked.backend) == len(plain.backend)
            for table in repacked.backend._tables:
                if isinstance(table, HeapStateTable):
                    check_packs(table)
        sizes = (list(each.backend.entries_by_key_group()) for each in (repacked, plain))
        assert len({*map(tuple, sizes)}) == 1
        assert repacked.seen() == plain.seen()

    agree()
