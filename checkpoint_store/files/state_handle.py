"""References to immutable state files: everything needed to find a file and to trust its bytes.

A changelog or a snapshot is one object. A database is several objects: the object that describes
the database, under the handle's name, and the parts, which other handles may share.
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
    """An object of a database, written once and shared by all snapshots that contain the object.

    `name` is relative to the store; `length` in bytes; `checksum`: sha256, hex.
    """

    name: str
    length: int
    checksum: str


@dataclass(frozen=True, slots=True)
class FileTail:
    """The last `length` bytes of a file of rows, with a checksum (sha256, hex). From the tail, a
    reader of some key groups learns which other bytes to read. `key_groups`: the key groups of the
    whole file."""

    key_groups: KeyGroupRange
    length: int
    checksum: str


@dataclass(frozen=True, slots=True)
class StateHandle:
    """A reference to one state file, or to a part of the file for a range of key groups.

    `name` is relative to the store; `length`, `checksum` (sha256, hex), `rows` and `epoch` are of
    the whole file. `key_groups`: the key groups whose rows are used. After a rescale `key_groups`
    is narrower than the file: the other rows belong to another subtask, which may have replaced
    those rows since. `key_bounds`: the bounds of some key columns, noted by the writer. `parts`:
    the parts of a database. `tail`: the tail of a file of rows, if a reader may read the file in
    part.
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
        """Return the lengths of all needed objects, by name."""
        return {self.name: self.length} | {part.name: part.length for part in self.parts}


def bytes_of(handles: Iterable[StateHandle]) -> int:
    """Return the total length of all objects of these files, each object counted once."""
    lengths: dict[str, int] = {}
    for handle in handles:
        lengths.update(handle.lengths())
    return sum(lengths.values())
