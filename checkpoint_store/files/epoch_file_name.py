"""The names of the files that tasks write. Pure.

    <directory>/<kind>-<subtask>-<attempt>-<unique>.<ending>

    kind                   ending   file
    changelog, snapshot    arrow    an Arrow file of rows
    database               json     the description of a database
    table                  sst      one of a database's tables of sorted rows
    operator-state         arrow    the operator state of a subtask
    alive                  json     a sign of life, see sign_of_life

Subtask and attempt are decimal, padded with zeros to 5 and 19 digits. `unique` is 12 hex digits
that the writer draws, so two writers never use one name (I1). The directory tells the epoch or
batch of the file; each kind of store has its own directories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

NamedKind = Literal["changelog", "snapshot", "database", "table", "operator-state", "alive"]
_ENDINGS: dict[NamedKind, str] = {
    "changelog": "arrow",
    "snapshot": "arrow",
    "database": "json",
    "table": "sst",
    "operator-state": "arrow",
    "alive": "json",
}
_NAME = re.compile(
    rf"(?P<kind>{'|'.join(_ENDINGS)})-(?P<subtask>\d{{5}})-(?P<attempt>\d{{19}})"
    r"-(?P<unique>[0-9a-f]{12})\.(?P<ending>[a-z]+)"
)


@dataclass(frozen=True, slots=True)
class EpochFileName:
    """The name of a file in the directory of an epoch or of a batch."""

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


def parse_epoch_file_name(name: str) -> EpochFileName | None:
    """Parse a file's name, in any directory. Return None for another name."""
    directory, _, file = name.rpartition("/")
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    kind = cast(NamedKind, match["kind"])
    if match["ending"] != _ENDINGS[kind]:
        return None
    return EpochFileName(
        directory=directory,
        kind=kind,
        subtask=int(match["subtask"]),
        attempt=int(match["attempt"]),
        unique=match["unique"],
    )


def is_sign_of_life(name: str) -> bool:
    """Return True for the name of a sign of life."""
    file = parse_epoch_file_name(name)
    return file is not None and file.kind == "alive"
