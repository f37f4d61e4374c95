"""Retention of the versions of a table (I8). `deletion` defines the words.

The versions that name a file follow each other without a gap: once a version does not name the
file, no later version does. So a file of an expired version is needed only if the oldest retained
version names the file. Retention reads the expired versions and the oldest retained version.
Versions are deleted before files, one after the other, the oldest first, because a version that is
missing between other versions is taken for lost.

A damaged version is passed over. The oldest retained version must be readable, so a few more
versions may be retained. A file that only a damaged version named becomes an orphan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from checkpoint_store import object_names
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.deletion import LEAST_TO_RETAIN, delete_in_turn
from checkpoint_store.objects.named_object import list_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.tables import table_layout as layout
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion

_VERSIONS_AT_ONCE = 10
# A commit waits for retention, so a great number of versions is deleted in several turns.
_MOST_AT_ONCE = 100


class TableRetention:
    def __init__(self, store: ObjectStore, table: TableStore) -> None:
        self._store = store
        self._table = table

    def retain(self, min_to_retain: int) -> int:
        """Delete expired versions and their files; return the number of deleted objects.

        Nothing is deleted while fewer than 10 versions are expired, so a few more versions than
        `min_to_retain` may stay. Raises CorruptObjectError, and deletes nothing, if every version
        that may become the oldest retained version is damaged.
        """
        assert min_to_retain >= LEAST_TO_RETAIN, "the options allow no less"
        numbers = self._table.versions()
        most = len(numbers) - min_to_retain
        if most < _VERSIONS_AT_ONCE:
            return 0
        oldest_retained = self._oldest_retained(numbers, min(most, _MOST_AT_ONCE), most)
        if oldest_retained is None:
            return 0
        expired = [number for number in numbers if number < oldest_retained.version]
        # A version before a gap was put too late, see standing_of: its files may be committed
        # again under a later number. If not, the orphan sweep deletes the files.
        gone_or_kept = pairwise([*expired, oldest_retained.version])
        after_gaps = [later for earlier, later in gone_or_kept if later > earlier + 1]
        first = max(after_gaps, default=0)
        named = in_parallel(self._files_of, [number for number in expired if number >= first])
        unneeded = frozenset[str]().union(*named) - oldest_retained.object_names()
        listed = list_named(self._store, object_names.COMPACTIONS, layout.parse_compaction)
        compactions = [str(name) for name in listed if name.version < oldest_retained.version]
        versions = ([layout.version_name(number)] for number in expired)
        return delete_in_turn(self._store, *versions, compactions, sorted(unneeded))

    def _oldest_retained(
        self, numbers: Sequence[int], wanted: int, most: int
    ) -> TableVersion | None:
        """Choose the oldest version to retain: the version that has `wanted` older versions. If
        this version is damaged, choose an older version that is readable. If there is none, choose
        a newer version, with at most `most` older versions. None if another process deletes
        versions meanwhile."""
        damage: list[CorruptObjectError] = []
        for count in (*range(wanted, 0, -1), *range(wanted + 1, most + 1)):
            read = self._table.version_or_damage(numbers[count])
            if not isinstance(read, CorruptObjectError):
                return read
            damage.append(read)
        raise damage[0]

    def _files_of(self, number: int) -> frozenset[str]:
        """The files that a version names; empty for a damaged version."""
        version = self._table.version_or_damage(number)
        return version.object_names() if isinstance(version, TableVersion) else frozenset()
