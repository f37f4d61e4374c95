"""A heap table under test, beside its expected content."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.current_key import CurrentKey
from tests.support.operators.state_map_model import check_map

KEY_GROUPS = KeyGroupRange(0, 2)
ModelKey = tuple[int, ...]
Contents = dict[ModelKey, Any]


def key_group(key: ModelKey) -> int:
    return sum(key) % 3


class FormWithoutFiles:
    """A form of state that nobody writes or reads."""

    struct_type = pa.struct([])

    def deletes(self, states: Any) -> list[bool]:
        return [state is None for state in states]

    def to_arrow(self, states: Any) -> Any:
        raise AssertionError("nothing is written")

    def from_arrow(self, array: Any) -> Any:
        raise AssertionError("nothing is read")


@dataclass
class HeapTableModel(ABC):
    """The table, its expected content, and the contents for a possible undo. The methods are the
    steps of a script."""

    current: CurrentKey = field(default_factory=lambda: CurrentKey(0))
    now: Contents = field(default_factory=dict)
    base: Contents = field(default_factory=dict)
    sealed_from: Contents | None = None
    snapshots: list[tuple[Any, Contents]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table: Any = self.new_table()
        self.set_key(0)

    @abstractmethod
    def new_table(self) -> Any:
        """The table, which is empty."""

    @abstractmethod
    def maps(self) -> Any:
        """The maps of the table."""

    @abstractmethod
    def follow(self, contents: Contents, key: ModelKey, row: Any) -> None:
        """Apply a row of a changelog."""

    def content_of(self, state: Any) -> Any:
        """The expected content of a key with a state in a snapshot."""
        return state

    def set_key(self, number: int) -> None:
        self.key = (number,)
        self.current.key, self.current.key_group = self.key, key_group(self.key)

    def seal(self) -> None:
        self.table.seal()
        self.sealed_from, self.base = self.base, copy.deepcopy(self.now)

    def roll_back(self) -> None:
        self.table.rollback()
        self.now = copy.deepcopy(self.base)

    def undo(self) -> None:
        if self.sealed_from is not None:
            self.roll_back()
            self.table.undo_sealed()
            self.now, self.base = copy.deepcopy(self.sealed_from), self.sealed_from
            self.sealed_from = None

    def applied(self, key: ModelKey, row: Any) -> None:
        """Note a row that was applied."""
        self.follow(self.now, key, row)
        self.base, self.sealed_from = copy.deepcopy(self.now), None

    def snapshot(self) -> None:
        self.snapshots.append((self.table.snapshot(KEY_GROUPS), copy.deepcopy(self.now)))

    def read(self) -> None:
        """Compare the oldest snapshot, and release it."""
        if self.snapshots:
            snapshots, held = self.snapshots.pop(0)
            read = chain.from_iterable(snapshots.values())
            assert {key: self.content_of(state) for key, state in read} == held
            for snapshot in snapshots.values():
                snapshot.release()

    def check(self) -> None:
        """Assert that the changelog leads from the base to the table's content."""
        changes = self.table.changes()
        followed = copy.deepcopy(self.base)
        for key, row in zip(changes.keys, changes.states, strict=True):
            self.follow(followed, key, row)
        assert followed == self.now
        assert [key_group(key) for key in changes.keys] == list(changes.key_groups)
        for entries in self.maps()._maps.values():
            check_map(entries)


def check_packs(table: HeapStateTable[Any]) -> None:
    """Assert that packs and maps have each key once, and that a pack finds each of its rows."""
    in_packs = [key for pack in table._packs for key in pack]
    in_maps = [key for _, key, _ in table._entries]
    assert len({*in_packs, *in_maps}) == len(in_packs) + len(in_maps)
    assert table._unpacked.isdisjoint(in_packs)
    for pack in table._packs:
        assert len(pack) == pack._is_left.sum()
        of_groups = Counter(pack._rows.key_groups()[pack._is_left].tolist())
        assert {group: size for group, size in pack.sizes().items() if size} == of_groups
        assert (pack._hashes[:-1] <= pack._hashes[1:]).all()
        assert (pack._rows.hashes()[pack._order] == pack._hashes).all()
        assert sorted(pack._order.tolist()) == [*range(len(pack._is_left))]
