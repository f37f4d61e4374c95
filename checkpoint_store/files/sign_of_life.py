"""Signs of life: objects that keep the orphan sweep away from files that nothing names yet (I8).

    <directory>/alive-<subtask>-<attempt>-<unique>.json    see epoch_file_name

For the sweep, an unnamed file is as old as the newest object of the file's directory. A writer that
takes long puts signs of life into the directory until its files are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.document import encode_document
from checkpoint_store.files.epoch_file_name import EpochFileName
from checkpoint_store.objects.named_object import unique_of_uuid
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore


class SignsOfLife:
    """The signs of life of one attempt of a task in a directory of `store`."""

    def __init__(self, store: ObjectStore, directory: str, subtask: int, attempt: int) -> None:
        self._store = store
        self._place = directory, subtask, attempt
        self._put: list[str] = []

    @property
    def were_needed(self) -> bool:
        """True if the attempt took so long that it put a sign."""
        return bool(self._put)

    def put(self) -> None:
        """Put a sign of life. The previous sign stays, and older signs are deleted. A listing in
        several pages may miss the new sign, but then the listing shows the previous sign."""
        directory, subtask, attempt = self._place
        sign = str(EpochFileName(directory, "alive", subtask, attempt, unique_of_uuid()))
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
