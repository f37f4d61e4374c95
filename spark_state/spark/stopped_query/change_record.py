"""The records of a change of a stopped query's checkpoint, in JSON: a record is written before the
new state, and another record before the edits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from checkpoint_store.errors import UnsupportedFormatError
from checkpoint_store.files.document import Source

_FORMAT = 1

Changed = Mapping[str, Sequence[str | int]]
"""By the name of a changed thing, its value before and after the change."""


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A kind of change. `command`: the command that makes the change, such as "adopt"; `noun`: the
    name of the change, such as "adoption"."""

    command: str
    noun: str

    @property
    def root(self) -> str:
        """The folder in the checkpoint with the folders of the changes."""
        return f"_cowstate_{self.command}"

    @property
    def record(self) -> str:
        """The name of the file with the record that is written before the edits."""
        return f"{self.noun}.json"

    @property
    def begun(self) -> str:
        """The name of the file with the record that is written before the new state."""
        return f"{self.noun}-begun.json"


ADOPTION = ChangeKind("adopt", "adoption")
RESCALE = ChangeKind("rescale", "rescale")
KINDS = (ADOPTION, RESCALE)


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """The record of a change.

    checkpoint           the URL of the checkpoint; a copy of the checkpoint has another URL
    planned, committed   the last batches of the query before the change
    changed              values before and after, for the report of `revert`
    own                  JSON values of this kind of change: `from` and `to`, and values that say
                         where the new state is. A rescale has its `attempt`, which is part of the
                         names of all files of its new state
    edited               by path, the SHA-256 of the new content. With the last edit the change
                         takes effect, unless `moved` has a folder
    between              by path, the texts that some edited files have until the change takes
                         effect
    finishing            by path, the texts that the files in `between` get after the change took
                         effect
    removed              paths of files that no query reads, in the order of removal
    removed_last         paths of files that the query may need until the change takes effect, in
                         the order of removal. The files are removed after the last edit. If there
                         are no edits, the first of these removals makes the change take effect
    created              paths of new files; may be in `edited`, too
    moved                folders that move into the folder of the change. With the last move the
                         change takes effect
    """

    checkpoint: str
    planned: int
    committed: int | None
    changed: Changed
    own: Mapping[str, Any] = field(default_factory=dict)
    edited: Mapping[str, str] = field(default_factory=dict)
    between: Mapping[str, str] = field(default_factory=dict)
    finishing: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    removed_last: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def replaced(self) -> tuple[str, ...]:
        """The edited files that existed before, in the order of the edits."""
        return tuple(path for path in self.edited if path not in self.created)

    @property
    def saved(self) -> tuple[str, ...]:
        """The files with a copy in the folder of the change."""
        return (*self.replaced, *self.removed, *self.removed_last)

    @property
    def last_edit(self) -> str:
        """The file whose edit makes the change take effect."""
        return [*self.edited][-1]

    def content(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def of(cls, content: Mapping[str, Any], source: Source) -> ChangeRecord:
        """The record from the JSON values of `content`. Raises UnsupportedFormatError."""
        if content["format"] != _FORMAT:
            raise UnsupportedFormatError(source.url, source.name, content["format"], _FORMAT)
        values = {key: value for key, value in content.items() if key != "format"}
        for key in ("removed", "removed_last", "created", "moved"):
            values[key] = tuple(values[key])
        return cls(**values)


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
