"""Deleting old versions of a table, and what nothing names (I8).

A file is named by versions that follow each other without a gap: once a version does not name it,
no later one does. So what the oldest retained version does not name, and an older one does, is not
needed any more, and retention reads the versions that it deletes and one more. Versions are deleted
before files: whoever is stopped half way leaves orphans, never a named file missing. They are
deleted one after the other, the oldest first: one that is missing between others is lost.

Orphans are files of killed writers, of commits that were given up, and of compactions that were not
used. They are deleted once they are older than a grace period, which must exceed the time that any
writer takes from its file to its version. While a version is lost, none are: they may be its files.

A damaged version is passed over. Retention begins with one that can be read, and rather keeps a few
versions more. The sweep keeps whatever a damaged version may name: a file of a compaction of it or
of an older version, a file of a batch that the next version knows as committed, and all files of
writers of which that version knows nothing, such as batch jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from checkpoint_store import object_names
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.object_store import UNPUBLISHED, ObjectInfo, ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.tables import table_layout as layout
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion

_log = logging.getLogger(__name__)
_VERSIONS_AT_ONCE = 10
# A commit waits for this, so some of very many are left for the next time.
_MOST_AT_ONCE = 100


def retain_versions(store: ObjectStore, table: TableStore, min_versions: int) -> int:
    """Keep the newest `min_versions` (at least 2); the number of objects deleted.

    Deletes some versions at once, so a few more than that may be there. Raises CorruptObjectError
    when no version can be read that may be the oldest to keep: nothing is deleted then.
    """
    if min_versions < 2:
        raise ValueError(f"minVersionsToRetain is {min_versions}; it must be at least 2")
    numbers = table.versions()
    most = len(numbers) - min_versions
    if most < _VERSIONS_AT_ONCE:
        return 0
    oldest = _oldest_to_keep(table, numbers, min(most, _MOST_AT_ONCE), most)
    if oldest is None:
        return 0
    expired = [number for number in numbers if number < oldest.version]
    named = in_parallel(lambda number: _files_if_readable(table, number), expired)
    files = frozenset[str]().union(*named) - oldest.object_names()
    compactions = [
        info.name
        for info in store.list(object_names.COMPACTIONS)
        if (name := layout.parse_compaction(info.name)) and name.version < oldest.version
    ]
    for number in expired:
        store.delete([layout.version_name(number)])
    for names in (compactions, sorted(files)):
        if names:
            store.delete(names)
    return len(expired) + len(compactions) + len(files)


def _oldest_to_keep(
    table: TableStore, numbers: Sequence[int], wanted: int, most: int
) -> TableVersion | None:
    """The version before which `wanted` versions may go; one that can be read, with fewer before
    it rather than more, and `most` at most. None if another process deletes them meanwhile."""
    damage: list[CorruptObjectError] = []
    for count in (*range(wanted, 0, -1), *range(wanted + 1, most + 1)):
        read = _read_or_damage(table, numbers[count])
        if not isinstance(read, CorruptObjectError):
            return read
        damage.append(read)
    raise damage[0]


def sweep_table_orphans(
    store: ObjectStore,
    table: TableStore,
    grace_seconds: float,
    now: float,
    coming: TableVersion | None = None,
) -> list[str]:
    """Delete files that nothing names, last modified before `now - grace_seconds` (in seconds since
    1970); their names. Reads every version. What a damaged one may name is kept, and what one that
    is about to be committed (`coming`) does."""
    # What is old is listed before what is named: a file that is named meanwhile is not missed.
    old = [info for info in _files(store) if _is_older(info, now - grace_seconds)]
    named = {file.name for compaction in table.compactions() for file in compaction.files}
    numbers = table.versions()
    if numbers and len(numbers) <= numbers[-1] - numbers[0]:
        _log.warning("orphans of %s are kept, because a version is missing", table.url)
        return []
    versions = in_parallel(lambda number: _read_or_damage(table, number), numbers)
    for version in (*versions, coming):
        if isinstance(version, TableVersion):
            named |= version.object_names()
    may_be_named = _by_damaged(numbers, versions)
    unnamed = [info.name for info in old if info.name not in named]
    orphans = sorted(name for name in unnamed if not may_be_named(name))
    if orphans:
        store.delete(orphans)
    return orphans


def _by_damaged(
    numbers: Sequence[int], versions: Sequence[TableVersion | CorruptObjectError | None]
) -> Callable[[str], bool]:
    """Whether one of the damaged versions may name a file of this name.

    It goes by names and not by times, since a backup that is restored changes these.
    """
    damaged = [n for n, read in enumerate(versions) if isinstance(read, CorruptObjectError)]
    if not damaged:
        return lambda name: False
    newest = numbers[damaged[-1]]
    after = versions[damaged[-1] + 1] if damaged[-1] + 1 < len(versions) else None
    batches = after.batches if isinstance(after, TableVersion) else {}

    def may_be_named(name: str) -> bool:
        file = layout.parse_table_file(name)
        if file is None:
            return False
        if file.writer == object_names.COMPACTED:
            return file.batch <= newest
        return file.writer not in batches or file.batch <= batches[file.writer]

    return may_be_named


def _read_or_damage(table: TableStore, number: int) -> TableVersion | CorruptObjectError | None:
    """A version, or what is wrong with it; None if it is not there any more."""
    try:
        return table.read_version(number)
    except CorruptObjectError as error:
        tell_passed_over("version", error)
        return error


def _files_if_readable(table: TableStore, number: int) -> frozenset[str]:
    # Files that only a damaged version named become orphans, for the orphan sweep.
    version = _read_or_damage(table, number)
    return version.object_names() if isinstance(version, TableVersion) else frozenset()


def _files(store: ObjectStore) -> list[ObjectInfo]:
    """Files of rows, and what was never published."""
    writers = store.list_directories(object_names.DATA)
    batches = [name for names in in_parallel(store.list_directories, writers) for name in names]
    listings = in_parallel(store.list, batches)
    files = [info for listing in listings for info in listing if layout.parse_table_file(info.name)]
    return [*files, *store.list(UNPUBLISHED)]


def _is_older(info: ObjectInfo, time: float) -> bool:
    return info.modified is not None and info.modified < time
