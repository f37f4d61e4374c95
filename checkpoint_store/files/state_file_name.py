"""The names of state files. Pure.

    <directory>/<kind>-<subtask>-<attempt>-<unique>.<ending>

`kind` is changelog or snapshot, of Arrow (`arrow`), or database (`json`) or one of its tables of
sorted rows (`sst`); subtask and attempt are decimal, padded with zeros to 5 and 19
digits; `unique` is 12 hex digits that the writer draws, so two writers never meet in one name (I1).
The directory tells of which epoch or batch the file is; each kind of store has its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

NamedKind = Literal["changelog", "snapshot", "database", "table"]
_ENDINGS: dict[NamedKind, str] = {
    "changelog": "arrow",
    "snapshot": "arrow",
    "database": "json",
    "table": "sst",
}
_NAME = re.compile(
    r"(?P<kind>changelog|snapshot|database|table)-(?P<subtask>\d{5})-(?P<attempt>\d{19})"
    r"-(?P<unique>[0-9a-f]{12})\.(?P<ending>[a-z]+)"
)


@dataclass(frozen=True, slots=True)
class StateFileName:
    """An object of a state file."""

    directory: str
    kind: NamedKind
    subtask: int
    attempt: int
    unique: str

    def __str__(self) -> str:
        return (
            f"{self.directory}/{self.kind}-{self.subtask:05d}-{self.attempt:019d}"
            f"-{self.unique}.{_ENDINGS[self.kind]}"
        )


def parse_state_file_name(name: str) -> StateFileName | None:
    """The parts of a state file's name, whatever its directory is; None if it is not one."""
    directory, _, file = name.rpartition("/")
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    kind = cast(NamedKind, match["kind"])
    if match["ending"] != _ENDINGS[kind]:
        return None
    return StateFileName(
        directory=directory,
        kind=kind,
        subtask=int(match["subtask"]),
        attempt=int(match["attempt"]),
        unique=match["unique"],
    )
