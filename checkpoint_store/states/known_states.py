"""States that a process has read, kept in memory to compute the next changes. A reader of a kept
state reads only the rows added since the state was kept (I7).

    KnownState    the rows of one state at one version; finds the rows of given keys
    KnownStates   several known states, within a bound of bytes

A known state is immutable, and belongs to exactly the files in its field `files` (I1): a version
rolled back and written again has other files. A known state is a few tables of rows, each with an
index from hashes of keys to rows. Added rows become one more table. Two tables are folded if the
older table is at most twice as large as the newer table, so a row is moved about log(state /
changes) times, and the lookup of a key costs as many searches.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import OP, PUT
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.remembered import Remembered
from checkpoint_store.states.key_hashes import Hashes, key_hashes
from checkpoint_store.states.row_fold import FoldRules, fold_state
from checkpoint_store.states.state_history import StateShape

_REMEMBERED_SIZES = 1024
_STATES_OF_PART = 3


@dataclass(frozen=True, slots=True)
class StatePart:
    """The part of a state that a known state holds: some key groups, with rows of the form
    `shape`."""

    url: str
    shape: StateShape
    key_groups: KeyGroupRange


@dataclass(frozen=True)
class _IndexedRows:
    """Rows in the order in which they apply. `hashes`: the hashes of the keys, sorted. `places`:
    for each hash, the place of its row in `rows`."""

    rows: pa.Table
    hashes: Hashes
    places: npt.NDArray[np.int64]

    @cached_property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.hashes.nbytes + self.places.nbytes

    def of_keys(self, hashes: Hashes) -> pa.Table:
        """The rows whose key has one of the hashes, in the order of `rows`."""
        # One range of indexes for each hash, without a loop: starts 4, 9, 20 with counts 2, 0, 3
        # give the running numbers 0 1 | 2 3 4, and so the indexes 4 5 | 20 21 22.
        starts = np.searchsorted(self.hashes, hashes, "left")
        counts = np.searchsorted(self.hashes, hashes, "right") - starts
        skipped = np.cumsum(counts) - counts
        indexes = np.repeat(starts - skipped, counts) + np.arange(counts.sum())
        return self.rows.take(pa.array(np.sort(self.places[indexes])))


@dataclass(frozen=True)
class KnownState:
    """The state at a version. `files`: all files of the state, in the order in which files apply.
    `added`: the files that the version itself added."""

    version: int
    files: tuple[StateHandle, ...]
    rules: FoldRules
    parts: tuple[_IndexedRows, ...] = ()
    added: tuple[StateHandle, ...] = ()

    def is_of(self, files: tuple[StateHandle, ...], added: tuple[StateHandle, ...]) -> bool:
        """True if this is the state of a version that now has the files `files`, and that added
        `added`.

        A version has other files after a compaction. But the files added by the version itself are
        never replaced, and no other version has added the same files.
        """
        return self.files == files or (self.added != () and self.added == added)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the state in memory."""
        return sum(part.nbytes for part in self.parts)

    def rows_of(self, rows: pa.Table) -> list[pa.Table]:
        """All rows of the keys in `rows`, in the order in which rows apply; perhaps also rows of
        other keys."""
        hashes = np.unique(key_hashes(rows, self.rules.key_names))
        return [part.of_keys(hashes) for part in self.parts]

    def rows(self) -> list[pa.Table]:
        """All rows, in the order in which rows apply."""
        return [part.rows for part in self.parts]

    def followed_by(
        self,
        rows: pa.Table,
        version: int,
        files: tuple[StateHandle, ...],
        added: tuple[StateHandle, ...],
    ) -> KnownState:
        """The state of `files`: this state with `rows` applied."""
        parts = [part.rows for part in self.parts]
        kept = len(parts)
        if rows.num_rows:
            parts.append(rows)
        # Afterwards every table has more than twice the rows of the next table, so tables are few.
        # Rows are moved only together with at least half as many newer rows.
        #
        #     100 000 | 8 000 | 900  + 500  ->  100 000 | 8 000 | 1 400
        #     100 000 | 8 000 | 900  + 5000 ->  100 000 | 13 900
        while len(parts) > 1 and parts[-2].num_rows <= 2 * parts[-1].num_rows:
            newest = parts.pop()
            parts[-1] = pa.concat_tables([parts[-1], newest], promote_options="permissive")
            kept = min(kept, len(parts) - 1)
        whole = not kept
        new = [self._indexed(self._folded(part, whole=whole)) for part in parts[kept:]]
        parts_now = (*self.parts[:kept], *new)
        return replace(self, version=version, files=files, parts=parts_now, added=added)

    def _folded(self, rows: pa.Table, *, whole: bool) -> pa.Table:
        """Fold rows. `whole`: the state has no rows before `rows`."""
        if self.rules.ignores_nulls and not whole:
            # Folding a delete and later puts makes one put, which hides the delete. A null in the
            # put would then keep the value of an older table, although the delete removed the
            # value.
            return rows
        folded = fold_state(rows, self.rules, keep_tombstones=True)
        if whole and not self.rules.sequenced:
            # A tombstone hides rows of older tables and late rows to come. Here there are no such
            # rows.
            folded = folded.filter(pc.equal(folded[OP], pa.scalar(PUT)))
        return folded

    def _indexed(self, rows: pa.Table) -> _IndexedRows:
        rows = rows.combine_chunks()
        hashes = key_hashes(rows, self.rules.key_names)
        places = np.argsort(hashes)
        return _IndexedRows(rows, hashes[places], places)


class KnownStates:
    """Known states, together within `most_bytes`, the bound given in each call. The least recently
    used state is dropped first. For each part the last few states are kept: the state before a
    batch, to read the batch again; the state after the batch; and the state of a reader that is
    behind. Safe for several threads."""

    def __init__(self) -> None:
        self._states: OrderedDict[StatePart, tuple[KnownState, ...]] = OrderedDict()
        self._too_large: Remembered[StatePart, int] = Remembered(_REMEMBERED_SIZES)
        self._lock = threading.Lock()

    def get(self, part: StatePart, version: int) -> KnownState | None:
        """The newest known state of a part, up to `version`; None if no such state is known."""
        with self._lock:
            states = self._states.get(part, ())
            older = [state for state in states if state.version <= version]
            if not older:
                return None
            newest = max(older, key=lambda state: state.version)
            self._states[part] = (*(state for state in states if state is not newest), newest)
            self._states.move_to_end(part)
            return newest

    def fits(self, part: StatePart, file_bytes: int, most_bytes: int) -> bool:
        """True if a state may be within the bound, judged by the length of its files, `file_bytes`.
        Files are compressed, so a state may be too large even if its files are within the bound.
        Once `put` has found a state of the part too large, only shorter files fit."""
        too_large = self._too_large.get(part)
        return file_bytes < (most_bytes if too_large is None else min(most_bytes, too_large))

    def put(self, part: StatePart, state: KnownState, file_bytes: int, most_bytes: int) -> None:
        """Keep a state of a part, in place of the known state of the same version. If the state is
        larger than `most_bytes`, keep no state of the part. `file_bytes`: the length of the state's
        files."""
        with self._lock:
            others = [s for s in self._states.pop(part, ()) if s.version != state.version]
            if state.nbytes > most_bytes:
                self._too_large.put(part, file_bytes)
                return
            self._states[part] = (*others, state)[-_STATES_OF_PART:]
            while self._held() > most_bytes:
                self._drop_one()

    def _held(self) -> int:
        """The bytes of all states. Rows that several states share are counted once."""
        rows = {
            id(part): part.nbytes
            for states in self._states.values()
            for state in states
            for part in state.parts
        }
        return sum(rows.values())

    def _drop_one(self) -> None:
        # A part that has several states loses a state first: once a part has no state, all files of
        # the part are read again.
        for part, states in self._states.items():
            if len(states) > 1:
                self._states[part] = states[1:]
                return
        self._states.popitem(last=False)
