"""The possible orphans of a table, and the objects needed by versions (I8). `deletion` defines the
words.

Files of rows may be orphans: files of killed writers, of abandoned commits, and of unused
compactions. Signs of life are always orphans. Each object is taken to be as old as the newest
object of its batch, so a batch stays whole as long as a writer writes the batch, see unnamed_files.
A file is needed if a version or a compaction names the file. While a version is lost, every file is
needed, because the lost version may have named the file.

A damaged version needs every file that it may name: files of compactions of the version or of an
older version, files of batches committed according to the next version, and all files of writers
unknown to the next version, such as batch jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from checkpoint_store import object_names
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.sign_of_life import as_young_as_newest
from checkpoint_store.files.state_file_name import is_sign_of_life
from checkpoint_store.objects.deletion import IsNeeded
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.tables import table_layout as layout
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion

_log = logging.getLogger(__name__)


class TableOrphans:
    """The SweptObjects of the table in `store`. `coming`: a version that is about to be committed;
    its files are needed, too."""

    def __init__(
        self, store: ObjectStore, table: TableStore, coming: TableVersion | None = None
    ) -> None:
        self._store = store
        self._table = table
        self._coming = coming

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        writers = self._store.list_directories(object_names.DATA)
        listings = in_parallel(self._store.list_directories, writers)
        batches = [name for names in listings for name in names]
        for infos in in_parallel(self._store.list, batches):
            files = [info for info in infos if layout.parse_table_file(info.name)]
            signs = [info for info in infos if is_sign_of_life(info.name)]
            yield from as_young_as_newest([*files, *signs])

    def needed(self) -> IsNeeded:
        named = {file.name for compaction in self._table.compactions() for file in compaction.files}
        numbers = self._table.versions()
        if numbers and len(numbers) <= numbers[-1] - numbers[0]:
            _log.warning(
                "unneeded files of rows of %s are kept, because a version is missing",
                self._table.url,
            )
            return lambda name: True
        versions = in_parallel(self._table.version_or_damage, numbers)
        for version in (*versions, self._coming):
            if isinstance(version, TableVersion):
                named |= version.object_names()
        may_be_named = _by_damaged(numbers, versions)
        return lambda name: name in named or may_be_named(name)


def _by_damaged(
    numbers: Sequence[int], versions: Sequence[TableVersion | CorruptObjectError | None]
) -> IsNeeded:
    """Make a function of a file's name: True if a damaged version may name the file. The function
    decides by names and not by times, because restoring a backup changes the times."""
    damaged = [n for n, read in enumerate(versions) if isinstance(read, CorruptObjectError)]
    if not damaged:
        return lambda name: False
    newest = numbers[damaged[-1]]
    after = versions[damaged[-1] + 1] if damaged[-1] + 1 < len(versions) else None
    batches = after.batches if isinstance(after, TableVersion) else {}

    def may_be_named(name: str) -> bool:
        directory = layout.parse_table_file(name)
        if directory is None:
            return False
        if directory.writer == object_names.COMPACTED:
            return directory.batch <= newest
        return directory.writer not in batches or directory.batch <= batches[directory.writer]

    return may_be_named
