"""A reference to one immutable state file: all that is needed to find it and to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checkpoint_store.files.key_bounds import KeyBounds
from checkpoint_store.files.key_group_range import KeyGroupRange

StateFileKind = Literal["changelog", "snapshot"]


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One state file, or the part of it that a range of key groups needs.

    `name` is relative to the store; `length` and `checksum` (sha256, hex) are of the whole file,
    as are `rows` and `epoch`. `key_groups` says which of the file's rows count: after a rescale
    it is narrower than the file, because the other rows belong to another subtask, which may
    have replaced them since. `key_bounds`: the bounds that the writer has noted, of some key
    columns.
    """

    kind: StateFileKind
    name: str
    length: int
    checksum: str
    key_groups: KeyGroupRange
    epoch: int
    rows: int
    key_bounds: tuple[KeyBounds, ...] = ()
