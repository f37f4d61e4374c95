"""Signs of life: objects that keep the orphan sweep away from files that nothing names yet (I8).

    <directory>/alive-<subtask>-<attempt>-<unique>.json

The sweep counts an unnamed file as old as the newest object of the file's directory. A writer that
takes long puts signs of life into the directory until its files are named. The numbers in a sign's
name are the numbers in a state file's name, see state_file_name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.document import encode_document
from checkpoint_store.objects.object_store import ObjectInfo, ObjectStore

_NAME = re.compile(r"alive-\d{5}-\d{19}-[0-9a-f]{12}\.json")


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The name of an object that shows that a task still writes into a directory."""

    directory: str
    subtask: int
    attempt: int
    unique: str

    def __str__(self) -> str:
        return f"{self.directory}/alive-{self.subtask:05d}-{self.attempt:019d}-{self.unique}.json"


def directory_of_sign(name: str) -> str | None:
    """Return the directory of a sign; None if `name` is not a sign's name."""
    directory, _, file = name.rpartition("/")
    return directory if _NAME.fullmatch(file) else None


class SignsOfLife:
    """The signs of life of one task in `store`. `next_sign` draws a new name each time."""

    def __init__(self, store: ObjectStore, next_sign: Callable[[], SignOfLife]) -> None:
        self._store = store
        self._next_sign = next_sign
        self._put: list[str] = []

    @property
    def were_needed(self) -> bool:
        """True if a sign was put."""
        return bool(self._put)

    def put(self) -> None:
        """Put a sign of life. The previous sign stays beside the new sign: a listing in several
        pages may miss both a new object and the replaced object."""
        sign = str(self._next_sign())
        self._store.put(sign, encode_document("sign-of-life", {}))
        replaced, self._put = self._put[:-1], [*self._put[-1:], sign]
        self._delete(replaced)

    def delete(self) -> None:
        """Delete the signs, after the files are named, or given up."""
        self._delete(self._put)

    def _delete(self, signs: Sequence[str]) -> None:
        # A task needs no right to delete: the orphan sweep deletes leftover signs.
        with suppress(CheckpointStoreError):
            if signs:
                self._store.delete(signs)


def as_young_as_newest(infos: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Return the entries of one directory, each with the time of the newest entry. One unknown time
    makes all times unknown."""
    times = [info.modified for info in infos]
    newest = max((time for time in times if time is not None), default=None)
    return [replace(info, modified=None if None in times else newest) for info in infos]
