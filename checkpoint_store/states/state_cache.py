"""The states that a process keeps in memory between two looks at a store.

A reader that follows a state asks for the changes since the last version that the reader saw. If
the state at that version is in memory, only the files of the changes are read. If another process
has followed the state meanwhile, the state in memory is behind. In this case the changes since the
state in memory are read, too, unless reading the whole state takes less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.file_rows import files_of, flatten, read_files
from checkpoint_store.states.known_states import KnownState, KnownStates, StatePart
from checkpoint_store.states.row_fold import concat_rows, fold_rules, folded_schema
from checkpoint_store.states.state_history import StateHistory, StateVersion, lost_version

_REQUEST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class StateCache:
    """Keeps `states` within `most_bytes`. All readers of a process share the states."""

    states: KnownStates = field(default_factory=KnownStates)
    most_bytes: int = 128 << 20

    def state_at(
        self, history: StateHistory, version: StateVersion | None, part: StatePart
    ) -> KnownState | None:
        """The state at a version, from memory or read. With `version` None: the state before the
        first version, without rows. Returns None if the state is too large to keep."""
        schema = folded_schema(part.shape)
        nothing = KnownState(-1, (), fold_rules(part.shape, schema))
        if version is None:
            return nothing
        files = files_of(version.state, part.key_groups)
        if not self.states.fits(part, _bytes_of(files, part.key_groups), self.most_bytes):
            return None
        known_state = self.states.get(part, version.info.version) or nothing
        missing = _missing(history, known_state, version, part.key_groups)
        if missing is None:
            known_state, missing = nothing, files
        read = read_files(history, missing, part.key_groups, flatten(part.shape, schema))
        rows = concat_rows(read, part.shape, schema)
        return self.followed(part, known_state, rows, version)

    def followed(
        self, part: StatePart, known_state: KnownState, rows: pa.Table, version: StateVersion
    ) -> KnownState:
        """Keep and return the state at `version`: `known_state` with `rows` applied."""
        files = files_of(version.state, part.key_groups)
        state = known_state.followed_by(rows, version.info.version, files, version.changes)
        self.states.put(part, state, _bytes_of(files, part.key_groups), self.most_bytes)
        return state


def _missing(
    history: StateHistory, known_state: KnownState, version: StateVersion, key_groups: KeyGroupRange
) -> tuple[StateHandle, ...] | None:
    """The files that lead from the known state to a version. None in these cases: the version of
    the known state is gone or was written again; a version in between is damaged or lost, or moves
    keys to other key groups; reading the whole state takes less."""
    files = files_of(version.state, key_groups)
    if known_state.version == version.info.version:
        return () if known_state.is_of(files, version.changes) else None
    numbers = history.versions()
    if known_state.version not in numbers:
        return None
    between = [number for number in numbers if known_state.version < number <= version.info.version]
    try:
        then, later = history.at(known_state.version), [history.at(number) for number in between]
    except CorruptObjectError:
        return None
    is_same = known_state.is_of(files_of(then.state, key_groups), then.changes)
    is_led_to = not any(each.regroups for each in later)
    if not (is_same and is_led_to) or lost_version(known_state.version, later, numbers) is not None:
        return None
    missing = files_of(
        tuple(file for later_version in later for file in later_version.changes), key_groups
    )
    return missing if _cost(missing, key_groups) <= _cost(files, key_groups) else None


def _bytes_of(files: Sequence[StateHandle], key_groups: KeyGroupRange) -> int:
    """The approximate number of bytes in the files that belong to the key groups."""
    size = 0.0
    needed: Counter[str] = Counter()
    for file in files:
        needed[file.name] += len(file.key_groups)
    for file in files:
        common = file.key_groups.intersection(key_groups)
        if common is not None:
            size += file.length * len(common) / needed[file.name]
    return int(size)


def _cost(files: Sequence[StateHandle], key_groups: KeyGroupRange) -> int:
    return _bytes_of(files, key_groups) + len(files) * _REQUEST_BYTES
