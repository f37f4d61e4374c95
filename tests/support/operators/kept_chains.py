"""The files that a subtask writes and keeps over many epochs, simulated without a store.

snapshot_policy makes the decisions. Files are only handles, and each row counts as one byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count, takewhile

import numpy as np

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from spark_state.checkpointing.kept_state import (
    Counts,
    KeptState,
    rows_of_snapshot,
    without_empty_ends,
)
from spark_state.checkpointing.restore_plan import Handles
from spark_state.checkpointing.snapshot_policy import (
    Merge,
    due,
    may_be_due,
    part_due,
)
from spark_state.subtasks.pending_snapshot import Replaced

# Counting bytes takes longer than the rest of an epoch, so only every third epoch is counted.
_LOOK_EPOCHS = 3


@dataclass(frozen=True)
class _Begun:
    """A snapshot in progress: the handles that it replaces, and its files by key groups."""

    replaced: Replaced
    files: list[tuple[KeyGroupRange, StateHandle]]
    named_at: float


@dataclass
class KeptChain:
    """The files of a subtask over its runs. `entries`: the number of entries in each key group.

    An epoch names a snapshot `delay` epochs after the snapshot began, if the run lasts so long.
    `most_needed`: maximum of the bytes that a restore needs. `most_read`: maximum of the bytes of
    all files that a restore reads.
    """

    entries: Counts
    min_changelogs: int = 10
    delay: float = 1
    chain: Handles = ()
    changes: list[int] = field(default_factory=list)
    in_snapshots: int = 0
    in_merged: int = 0
    longest_wait: int = 0
    most_needed: float = 0
    most_read: int = 0
    most_handles: int = 0
    written_of: Counts = field(init=False)
    _rows: dict[str, Counts] = field(default_factory=dict)
    _merged: set[str] = field(default_factory=set)
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.written_of = np.zeros(len(self.entries), np.int64)

    @property
    def own(self) -> KeyGroupRange:
        return KeyGroupRange(0, len(self.entries) - 1)

    @property
    def changed(self) -> int:
        """The bytes of all changelogs."""
        return sum(self.changes)

    @property
    def amplification(self) -> float:
        """Write amplification: all written bytes divided by the bytes of changelogs."""
        return (self.changed + self.in_snapshots + self.in_merged) / self.changed

    def _kept(self, handles: Handles) -> KeptState:
        return KeptState.of(self.own, handles, self._rows, self.entries.tolist(), adds=False)

    def run(self, epochs: Iterable[Counts]) -> None:
        """Restore the state in a host, and run epochs. Each epoch has the number of changed rows of
        each key group."""
        part = part_due(self._kept(self.chain), self.min_changelogs)
        if part is not None:
            files = self._snapshot([part])
            self._name(_Begun(Replaced.all(self.chain), files, 0), self.chain)
            self.longest_wait = max(self.longest_wait, files[0][1].rows)
        before = {handle.name for handle in self.chain}
        begun: _Begun | None = None
        for epoch, rows in enumerate(epochs):
            if begun is not None and begun.named_at <= epoch:
                self._name(begun, self.chain)
                begun = None
            changelog = self._file("changelog", self.own, int(rows.sum()))
            self._rows[changelog.name] = rows
            self.chain = (*self.chain, changelog)
            self.changes.append(changelog.rows)
            self._look()
            if begun is None:
                begun = self._begun(before, epoch + self.delay)

    def _begun(self, before: set[str], named_at: float) -> _Begun | None:
        if not may_be_due(self.chain, int(self.entries.sum()), self.min_changelogs, adds=False):
            return None
        kept = self._kept(self.chain)
        own = tuple(handle for handle in self.chain if handle.name not in before)
        single = tuple(takewhile(self._is_single, reversed(own)))[::-1]
        next_step = due(kept, self._kept(own), single, self.min_changelogs)
        if isinstance(next_step, Merge):
            file = self._merge(self.chain[next_step.first : next_step.end])
            replaced = Replaced(self.chain, next_step.first, next_step.end)
            return _Begun(replaced, [(self.own, file)], named_at)
        if not next_step:
            return None
        return _Begun(Replaced.all(self.chain), self._snapshot(next_step), named_at)

    def _is_single(self, handle: StateHandle) -> bool:
        return handle.kind == "changelog" and handle.name not in self._merged

    def _merge(self, changelogs: Handles) -> StateHandle:
        """Merge changelogs. Changed entries are random, so a few rows of different changelogs are
        of the same entry."""
        untouched = np.ones(len(self.entries))
        for handle in changelogs:
            untouched *= 1 - self._rows[handle.name] / self.entries
        rows = np.ceil(self.entries * (1 - untouched)).astype(np.int64)
        file = self._file("changelog", self.own, int(rows.sum()))
        self._rows[file.name] = rows
        self._merged.add(file.name)
        self.in_merged += file.rows
        return file

    def _snapshot(self, ranges: Iterable[KeyGroupRange]) -> list[tuple[KeyGroupRange, StateHandle]]:
        files = []
        for key_groups in ranges:
            size = int(self.entries[key_groups.start : key_groups.end + 1].sum())
            file = self._file("snapshot", key_groups, size)
            self._rows[file.name] = rows_of_snapshot(file, self.own, self.entries)
            files.append((key_groups, file))
            self.in_snapshots += size
            self.written_of[key_groups.start : key_groups.end + 1] += 1
        return files

    def _name(self, begun: _Begun, chain: Handles) -> None:
        files = [(key_groups, (file,)) for key_groups, file in begun.files]
        handles = (*begun.replaced.by(files), *chain[len(begun.replaced.chain) :])
        self.chain = without_empty_ends(handles, self.own, self._rows)

    def _look(self) -> None:
        if len(self.changes) % _LOOK_EPOCHS == 0:
            needed = float(self._kept(self.chain).held.sum())
            self.most_needed = max(self.most_needed, needed)
        self.most_handles = max(self.most_handles, len(self.chain))
        self.most_read = max(self.most_read, sum({h.name: h.rows for h in self.chain}.values()))

    def _file(self, kind: StateFileKind, key_groups: KeyGroupRange, rows: int) -> StateHandle:
        name = f"{kind}-{next(self._numbers)}"
        return StateHandle(kind, name, rows, "00", key_groups, 0, rows)
