"""A reference to one immutable state file: all that is needed to find it and to trust it.

A changelog or snapshot is one object. A database is several: an object that describes it, to which
the handle's name belongs, and its parts, which other handles may share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from checkpoint_store.files.key_bounds import KeyBounds
from checkpoint_store.files.key_group_range import KeyGroupRange

StateFileKind = Literal["changelog", "snapshot", "database"]


@dataclass(frozen=True, slots=True)
class FilePart:
    """An object of a database, written once and shared by all snapshots that have it.

    `name` is relative to the store; `length` in bytes; `checksum`: sha256, hex.
    """

    name: str
    length: int
    checksum: str


@dataclass(frozen=True, slots=True)
class FileTail:
    """The end of a file of rows, from which a reader of some key groups learns what else it has to
    read: the last `length` bytes, and their checksum (sha256, hex). `key_groups`: those of the
    whole file."""

    key_groups: KeyGroupRange
    length: int
    checksum: str


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One state file, or the part of it that a range of key groups needs.

    `name` is relative to the store; `length` and `checksum` (sha256, hex) are of the whole file,
    as are `rows` and `epoch`. `key_groups` says which of the file's rows count: after a rescale
    it is narrower than the file, because the other rows belong to another subtask, which may
    have replaced them since. `key_bounds`: the bounds that the writer has noted, of some key
    columns. `parts`: those of a database. `tail`: of a file of rows that may be read in part.
    """

    kind: StateFileKind
    name: str
    length: int
    checksum: str
    key_groups: KeyGroupRange
    epoch: int
    rows: int
    key_bounds: tuple[KeyBounds, ...] = ()
    parts: tuple[FilePart, ...] = ()
    tail: FileTail | None = None

    def lengths(self) -> dict[str, int]:
        """The lengths of all objects that it needs, by name."""
        return {self.name: self.length} | {part.name: part.length for part in self.parts}


def bytes_of(handles: Iterable[StateHandle]) -> int:
    """The length of all objects that these files need, each counted once."""
    lengths: dict[str, int] = {}
    for handle in handles:
        lengths.update(handle.lengths())
    return sum(lengths.values())
