"""Contract of a keyed state backend, as tests."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkpoint_store.files.element_columns import LIST_POSITION, LIST_VALUE, MAP_VALUE, USER_KEY
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.codecs.codec import Forms
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.merged_changes import merged_changes
from spark_state.keyed_state.value_state import ValueState
from spark_state.processor.schemas import timers_descriptor
from spark_state.state_descriptor import StateDescriptor

NewBackend = Callable[[KeyGroupRange, KeyColumns, Forms], KeyedStateBackend[Any]]

KEY_GROUPS = KeyGroupRange(4, 11)
KEYS = KeyColumns(("key",), (pa.int64(),), ("long",))
_ROW = pa.struct([pa.field("n", pa.int64())])
VALUE = StateDescriptor("value", "value", _ROW, '{"type":"struct","fields":[]}')
LIST = StateDescriptor("list", "list", pa.struct([pa.field(LIST_VALUE, pa.list_(_ROW))]), "{}")
MAP = StateDescriptor("map", "map", pa.struct([pa.field(MAP_VALUE, pa.map_(_ROW, _ROW))]), "{}")
TIMERS = timers_descriptor("t")

# (state, key) -> content: a number, a list of numbers, or a dict from number to number.
Content = dict[tuple[str, int], Any]


def key_group_of(key: int) -> int:
    """Return the key group of a key: keys go to key groups in turn."""
    return KEY_GROUPS.start + key % len(KEY_GROUPS)


@dataclass
class WrittenFiles:
    """AttemptFiles in memory."""

    files: list[tuple[pa.Table, KeyGroupRange]] = field(default_factory=list)

    def write(self, kind: str, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        assert kind == "snapshot"
        self.files.append((rows, key_groups))
        name = f"snapshot-{len(self.files)}"
        return StateHandle("snapshot", name, 1, "00", key_groups, 0, rows.num_rows)


class States:
    """Backend with a state of each kind, accessed by key."""

    def __init__(self, backend: KeyedStateBackend[Any]) -> None:
        self.backend = backend
        value, elements, entries = (backend.state(descriptor) for descriptor in (VALUE, LIST, MAP))
        assert isinstance(value, ValueState)
        assert isinstance(elements, ListState)
        assert isinstance(entries, MapState)
        self._value, self._list, self._map = value, elements, entries

    def set_key(self, key: int) -> None:
        self.backend.set_current_key((key,), key_group_of(key))

    def content(self, keys: Iterable[int]) -> Content:
        """Return the content of the keys."""
        content: Content = {}
        for key in keys:
            self.set_key(key)
            if (value := self._value.get()) is not None:
                content["value", key] = value[0]
            if self._list.exists():
                content["list", key] = [element[0] for element in self._list.get()]
            if self._map.exists():
                content["map", key] = {k[0]: v[0] for k, v in self._map.iterator()}
        return content

    def change(self, chance: random.Random, key: int, content: Content) -> None:
        """Change a key at random, in the backend and in `content`."""
        self.set_key(key)
        number = chance.randrange(100)
        match chance.choice(["update", "clear", "append", "put", "drop", "set", "remove"]):
            case "update":
                self._value.update((number,))
                content["value", key] = number
            case "clear":
                self._value.clear()
                content.pop(("value", key), None)
            case "append":
                self._list.appendValue((number,))
                content.setdefault(("list", key), []).append(number)
            case "put":
                self._list.put([(number,), (number + 1,)])
                content["list", key] = [number, number + 1]
            case "drop":
                self._list.clear()
                content.pop(("list", key), None)
            case "set":
                self._map.updateValue((number % 5,), (number,))
                content.setdefault(("map", key), {})[number % 5] = number
            case "remove":
                self._map.removeKey((number % 5,))
                entries = content.get(("map", key), {})
                entries.pop(number % 5, None)
                if not entries:
                    content.pop(("map", key), None)


def _element(row: dict[str, Any]) -> Any:
    """Return the element that a row changes, within state and key; None if the row clears all
    elements."""
    held = row[row["_state"]]
    if row["_state"] == "value":
        return "value"
    if held is None:
        return None
    return held[LIST_POSITION] if row["_state"] == "list" else held[USER_KEY]["n"]


def _check_order(rows: Sequence[Any]) -> None:
    """Check the rows of a file: in the order of keys, one row per element, after a row that
    clears."""
    keys = [(row["_key_group"], row["key"]) for row in rows]
    assert keys == sorted(keys)
    assert all(row["_key_group"] == key_group_of(row["key"]) for row in rows)
    elements = [(row["key"], row["_state"], _element(row)) for row in rows]
    assert len(set(elements)) == len(elements)
    cleared = [(key, state) for key, state, element in elements if element is None]
    firsts = dict(reversed([((row[0], row[1]), row[2]) for row in elements]))
    assert all(firsts[entry] is None for entry in cleared)


class KeyedStateBackendContract:
    """Tests for every keyed state backend. Derive a class with a fixture `new_backend`: (key
    groups, key columns, forms) -> an empty backend."""

    keys = range(40)

    @pytest.fixture
    def states(self, new_backend: NewBackend) -> States:
        return States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))

    def filled(self, states: States, seed: int = 1) -> Content:
        """Return the content after an epoch of random changes."""
        content: Content = {}
        self.change(states, content, seed)
        states.backend.seal()
        return content

    def change(self, states: States, content: Content, seed: int, times: int = 300) -> None:
        chance = random.Random(seed)
        for _ in range(times):
            states.change(chance, chance.choice(self.keys), content)

    def restored(
        self, new_backend: NewBackend, tables: Iterable[pa.Table], rows_of_batch: int | None = None
    ) -> States:
        """Return another backend, restored from files."""
        states = States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))
        for table in tables:
            states.backend.apply(table.to_batches(rows_of_batch))
        return states

    def restored_from_snapshot(self, new_backend: NewBackend, files: WrittenFiles) -> States:
        """Return another backend, restored from the files of a snapshot."""
        states = States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))
        states.backend.restore((rows.to_batches(), None) for rows, _ in files.files)
        return states

    def test_an_empty_backend_has_nothing(self, states: States) -> None:
        assert states.content(self.keys) == {}
        assert len(states.backend) == 0
        assert list(states.backend.entries_by_key_group()) == [0] * len(KEY_GROUPS)
        assert states.backend.changes().num_rows == 0
        files = WrittenFiles()
        assert states.backend.snapshot().write(files) == ()
        assert files.files == []

    def test_each_key_has_states_of_its_own(self, states: States) -> None:
        content = self.filled(states)
        assert states.content(self.keys) == content
        by_group = [0] * len(KEY_GROUPS)
        for (_, key), held in content.items():
            by_group[key % len(KEY_GROUPS)] += 1 if isinstance(held, int) else len(held)
        assert len(states.backend) == sum(by_group)
        assert list(states.backend.entries_by_key_group()) == by_group

    def test_what_is_handed_out_does_not_change_the_state(self, states: States) -> None:
        content = self.filled(states)
        for _ in range(2):
            for key in self.keys:
                states.set_key(key)
                for element in states._list.get():
                    assert isinstance(element, tuple)
        assert states.content(self.keys) == content
        assert states.backend.changes().num_rows == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_a_rollback_leaves_what_was_before_the_epoch(self, states: States, seed: int) -> None:
        content = self.filled(states)
        self.change(states, copy.deepcopy(content), seed)
        states.backend.rollback()
        assert states.content(self.keys) == content
        assert states.backend.changes().num_rows == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_the_last_sealed_epoch_can_be_undone(self, states: States, seed: int) -> None:
        content = self.filled(states)
        self.change(states, copy.deepcopy(content), seed)
        states.backend.seal()
        states.backend.undo_sealed()
        assert states.content(self.keys) == content
        self.change(states, content, seed + 1)
        assert states.content(self.keys) == content

    @pytest.mark.parametrize("seed", range(5))
    def test_changes_lead_from_state_to_state(
        self, states: States, new_backend: NewBackend, seed: int
    ) -> None:
        content: Content = {}
        files = []
        for epoch in range(4):
            self.change(states, content, 10 * seed + epoch, times=60)
            files.append(states.backend.changes())
            states.backend.seal()
            assert self.restored(new_backend, files).content(self.keys) == content

    @pytest.mark.parametrize("rows_of_batch", [None, 1, 7])
    def test_entries_are_counted_with_and_without_a_note_of_how_many_more_there_are(
        self, states: States, new_backend: NewBackend, rows_of_batch: int | None
    ) -> None:
        content: Content = {}
        files: list[pa.Table] = []
        for epoch in range(6):
            self.change(states, content, epoch, times=40)
            files.append(states.backend.changes())
            states.backend.seal()
        kinds = {state.name: state.kind for state in states.backend.descriptors}
        without = [rows.replace_schema_metadata(None) for rows in files]
        counts = list(states.backend.entries_by_key_group())
        for chain in (
            files,
            without,
            [*without[:3], *files[3:]],
            [files[0], merged_changes(KEYS.names, kinds, files[1:])],
            [merged_changes(KEYS.names, kinds, [*files[:2], without[2]]), *files[3:]],
        ):
            restored = self.restored(new_backend, chain, rows_of_batch)
            assert list(restored.backend.entries_by_key_group()) == counts

    def test_rows_of_some_key_groups_count_for_these(
        self, states: States, new_backend: NewBackend
    ) -> None:
        self.change(states, {}, 1)
        rows = states.backend.changes()
        states.backend.seal()
        counts = list(states.backend.entries_by_key_group())
        of_some = rows.filter(pc.field("_key_group") >= KEY_GROUPS.start + 2)
        restored = self.restored(new_backend, [of_some])
        assert list(restored.backend.entries_by_key_group()) == [0, 0, *counts[2:]]

    @pytest.mark.parametrize("seed", range(5))
    def test_merged_changes_lead_to_the_same_state(
        self, states: States, new_backend: NewBackend, seed: int
    ) -> None:
        content = self.filled(states)
        before = WrittenFiles()
        states.backend.snapshot().write(before)
        changes = []
        for epoch in range(8):
            self.change(states, content, 10 * seed + epoch, times=40)
            changes.append(states.backend.changes())
            states.backend.seal()
        kinds = {state.name: state.kind for state in states.backend.descriptors}
        merged = merged_changes(KEYS.names, kinds, changes[:6])
        assert merged.num_rows < sum(table.num_rows for table in changes[:6])
        _check_order(merged.to_pylist())
        of_others = merged_changes(KEYS.names, kinds, [merged, changes[6]])
        files = [*(rows for rows, _ in before.files), of_others, changes[7]]
        assert self.restored(new_backend, files).content(self.keys) == content

    def test_changes_have_one_row_for_an_element_in_order(self, states: States) -> None:
        self.filled(states)
        self.change(states, {}, 2)
        _check_order(states.backend.changes().to_pylist())

    def test_changes_of_a_large_map_or_list_are_its_changed_elements(
        self, new_backend: NewBackend
    ) -> None:
        written = {}
        for size in (10, 1000):
            states = States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))
            states.set_key(1)
            states._list.put([(n,) for n in range(size)])
            for n in range(size):
                states._map.updateValue((n,), (n,))
            states.backend.seal()
            states.set_key(1)
            states._list.appendValue((1,))
            states._map.updateValue((2,), (1,))
            states._map.removeKey((3,))
            written[size] = states.backend.changes().num_rows
        assert written == {10: 3, 1000: 3}

    def test_a_snapshot_is_of_its_moment(self, states: States, new_backend: NewBackend) -> None:
        content = self.filled(states)
        snapshot = states.backend.snapshot()
        self.change(states, copy.deepcopy(content), 2)
        states.backend.seal()
        files = WrittenFiles()
        handles = snapshot.write(files)
        assert [handle.rows for handle in handles] == [rows.num_rows for rows, _ in files.files]
        written = self.restored_from_snapshot(new_backend, files)
        assert written.content(self.keys) == content

    def test_a_restored_backend_goes_on_like_any_other(
        self, states: States, new_backend: NewBackend
    ) -> None:
        content = self.filled(states)
        files = WrittenFiles()
        states.backend.snapshot().write(files)
        chain = [rows for rows, _ in files.files]
        for seed in range(2, 6):
            self.change(states, content, seed, times=20)
            chain.append(states.backend.changes())
            states.backend.seal()
        restored = States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))
        restored.backend.restore((rows.to_batches(), None) for rows in chain[:-1])
        restored.backend.apply(chain[-1].to_batches())
        counts = list(states.backend.entries_by_key_group())
        assert list(restored.backend.entries_by_key_group()) == counts
        self.change(restored, copy.deepcopy(content), 7, times=20)
        restored.backend.rollback()
        again = WrittenFiles()
        restored.backend.snapshot().write(again)
        assert self.restored_from_snapshot(new_backend, again).content(self.keys) == content
        assert restored.content(self.keys) == content

    def test_files_of_a_snapshot_have_key_groups_of_their_own(self, states: States) -> None:
        self.filled(states)
        files = WrittenFiles()
        states.backend.snapshot().write(files)
        named = [key_group for _, key_groups in files.files for key_group in key_groups]
        assert len(set(named)) == len(named)
        for rows, key_groups in files.files:
            groups: list[Any] = rows["_key_group"].to_pylist()
            assert groups == sorted(groups)
            assert set(groups) <= set(key_groups)

    def test_a_snapshot_of_some_key_groups_has_no_others(
        self, states: States, new_backend: NewBackend
    ) -> None:
        content = self.filled(states)
        wanted = KeyGroupRange(6, 8)
        snapshot: FullSnapshot = states.backend.snapshot(wanted)
        assert snapshot.key_groups == wanted
        files = WrittenFiles()
        snapshot.write(files)
        assert all(wanted.intersection(of_file) == of_file for _, of_file in files.files)
        written = self.restored_from_snapshot(new_backend, files)
        assert written.content(self.keys) == {
            entry: held for entry, held in content.items() if key_group_of(entry[1]) in wanted
        }

    def test_several_snapshots_may_be_open_and_given_up(
        self, states: States, new_backend: NewBackend
    ) -> None:
        content: Content = {}
        snapshots = []
        for epoch in range(4):
            self.change(states, content, epoch, times=50)
            states.backend.seal()
            snapshots.append((states.backend.snapshot(), copy.deepcopy(content)))
        given_up, _ = snapshots.pop(1)
        given_up.release()
        given_up.release()
        for snapshot, held in snapshots:
            files = WrittenFiles()
            snapshot.write(files)
            written = self.restored_from_snapshot(new_backend, files)
            assert written.content(self.keys) == held
        assert states.content(self.keys) == content

    def test_a_state_of_the_store_that_nobody_registers_is_written_on(
        self, states: States, new_backend: NewBackend
    ) -> None:
        content = self.filled(states)
        written = WrittenFiles()
        states.backend.snapshot().write(written)
        other = new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS)
        for descriptor in (VALUE, LIST, MAP):
            other.open_table(descriptor)
        other.restore((rows.to_batches(), None) for rows, _ in written.files)
        assert other.descriptors == (VALUE, LIST, MAP)
        again = WrittenFiles()
        other.snapshot().write(again)
        restored = self.restored_from_snapshot(new_backend, again)
        assert restored.content(self.keys) == content

    def test_a_dropped_state_is_gone_and_can_be_taken_back(self, states: States) -> None:
        content = self.filled(states)
        backend, kept = states.backend, {k: v for k, v in content.items() if k[0] != "map"}

        def held() -> Content:
            return States(backend).content(self.keys)

        assert backend.drop("map")
        assert not backend.drop("map")
        assert not backend.drop("no such state")
        assert [descriptor.name for descriptor in backend.descriptors] == ["value", "list"]
        assert len(backend) == sum(1 if isinstance(v, int) else len(v) for v in kept.values())
        backend.rollback()
        assert held() == content
        backend.drop("map")
        backend.seal()
        backend.undo_sealed()
        assert held() == content
        backend.drop("map")
        backend.seal()
        assert held() == kept

    def test_a_timer_that_is_deleted_or_registered_again_is_due_as_it_is_now(
        self, new_backend: NewBackend
    ) -> None:
        backend = new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS)
        backend.open_table(TIMERS)
        timers = backend.timers(TIMERS.name)

        def due(until_ms: int) -> list[tuple[int, Any]]:
            return [(timer.time_ms, timer.key) for timer in backend.due_timers("t", until_ms)]

        for key, times in {1: (20, 30), 2: (10,)}.items():
            backend.set_current_key((key,), key_group_of(key))
            for time_ms in times:
                timers.register(time_ms)
        backend.seal()
        for key, time_ms in ((1, 20), (2, 10)):
            backend.set_current_key((key,), key_group_of(key))
            timers.delete(time_ms)
        assert due(100) == [(30, (1,))]
        backend.seal()
        assert due(100) == [(30, (1,))]
        assert (backend.next_timer_ms(), backend.number_of_timers()) == (30, 1)
        backend.set_current_key((2,), key_group_of(2))
        timers.register(10)
        backend.seal()
        assert due(10) == [(10, (2,))]
        assert due(100) == [(10, (2,)), (30, (1,))]
        assert (backend.next_timer_ms(), backend.number_of_timers()) == (10, 2)

    def test_rows_of_states_that_are_not_named_are_not_applied(
        self, states: States, new_backend: NewBackend
    ) -> None:
        content: Content = {}
        self.change(states, content, 1)
        other = States(new_backend(KEY_GROUPS, KEYS, PLAIN_FORMS))
        other.backend.apply(states.backend.changes().to_batches(), ["list", "value"])
        assert other.content(self.keys) == {k: v for k, v in content.items() if k[0] != "map"}
