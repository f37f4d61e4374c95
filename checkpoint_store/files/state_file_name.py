"""The names of state files. Pure.

    <directory>/<kind>-<subtask>-<attempt>-<unique>.arrow

`kind` is changelog or snapshot; subtask and attempt are decimal, padded with zeros to 5 and 19
digits; `unique` is 12 hex digits that the writer draws, so two writers never meet in one name (I1).
The directory tells of which epoch or batch the file is; each kind of store has its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from checkpoint_store.files.state_handle import StateFileKind

_NAME = re.compile(
    r"(?P<kind>changelog|snapshot)-(?P<subtask>\d{5})-(?P<attempt>\d{19})"
    r"-(?P<unique>[0-9a-f]{12})\.arrow"
)


@dataclass(frozen=True, slots=True)
class StateFileName:
    """A changelog or snapshot."""

    directory: str
    kind: StateFileKind
    subtask: int
    attempt: int
    unique: str

    def __str__(self) -> str:
        return (
            f"{self.directory}/{self.kind}-{self.subtask:05d}-{self.attempt:019d}"
            f"-{self.unique}.arrow"
        )


def parse_state_file_name(name: str) -> StateFileName | None:
    """The parts of a state file's name, whatever its directory is; None if it is not one."""
    directory, _, file = name.rpartition("/")
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    return StateFileName(
        directory=directory,
        kind=cast(StateFileKind, match["kind"]),
        subtask=int(match["subtask"]),
        attempt=int(match["attempt"]),
        unique=match["unique"],
    )
