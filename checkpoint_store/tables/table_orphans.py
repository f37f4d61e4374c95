"""The possible orphans of a table, and the objects needed by versions (I8). `deletion` defines the
words.

The possible orphans are files of rows (of killed writers, of abandoned commits, and of unused
compactions) and signs of life: objects that a writer puts beside its files while it still writes
(see sign_of_life). No version names a sign of life, so every sign is deleted once it is old. Each
object is taken to be as old as the newest object of its batch, so a batch stays whole as long as a
writer writes the batch, see unnamed_files. A file is needed if a version or a compaction names the
file. While a version is lost or damaged, every object is needed, because the version may have named
any file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from checkpoint_store import object_names
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.epoch_file_name import is_sign_of_life
from checkpoint_store.files.sign_of_life import as_young_as_newest
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
        versions = in_parallel(self._table.version_or_damage, numbers)
        is_lost = numbers and len(numbers) <= numbers[-1] - numbers[0]
        if is_lost or any(isinstance(version, CorruptObjectError) for version in versions):
            _log.warning(
                "unneeded files of rows of %s are kept, because a version is missing or damaged",
                self._table.url,
            )
            return lambda name: True
        for version in (*versions, self._coming):
            if isinstance(version, TableVersion):
                named |= version.object_names()
        return lambda name: name in named
