"""Deleting old versions of a table, and what nothing names (I8).

A file is named by versions that follow each other without a gap: once a version does not name it,
no later one does. So what the oldest retained version does not name, and an older one does, is not
needed any more, and retention reads the versions that it deletes and one more. Versions are deleted
before files: whoever is stopped half way leaves orphans, never a named file missing. They are
deleted one after the other, the oldest first: one that is missing between others is lost.

Orphans are files of killed writers, of commits that were given up, and of compactions that were not
used. They are deleted once they are older than a grace period, which must exceed the time that any
writer takes from its file to its version. While a version is lost, none are: they may be its files.
"""

from __future__ import annotations

import logging

from checkpoint_store import table_layout as layout
from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.object_store import UNPUBLISHED, ObjectInfo, ObjectStore
from checkpoint_store.published_objects import in_parallel
from checkpoint_store.table_store import TableStore

_log = logging.getLogger(__name__)
_VERSIONS_AT_ONCE = 10
# Of very many, some are left for the next time: a commit waits for this.
_MOST_AT_ONCE = 100


def retain_versions(store: ObjectStore, table: TableStore, min_versions: int) -> int:
    """Keep the newest `min_versions` (at least 2); the number of objects deleted.

    Deletes some versions at once, so a few more than that may be there. Raises CorruptObjectError
    when the oldest version to keep cannot be read: nothing is deleted then.
    """
    if min_versions < 2:
        raise ValueError(f"minEpochsToRetain is {min_versions}; it must be at least 2")
    numbers = table.versions()
    expired = numbers[:-min_versions][:_MOST_AT_ONCE]
    if len(expired) < _VERSIONS_AT_ONCE:
        return 0
    oldest = table.read_version(numbers[len(expired)])
    if oldest is None:
        return 0
    named = in_parallel(lambda number: _files_if_readable(table, number), expired)
    files = frozenset[str]().union(*named) - oldest.object_names()
    compactions = [
        info.name
        for info in store.list(layout.COMPACTIONS)
        if (name := layout.parse_compaction(info.name)) and name.version < oldest.version
    ]
    for number in expired:
        store.delete([layout.version_name(number)])
    for names in (compactions, sorted(files)):
        if names:
            store.delete(names)
    return len(expired) + len(compactions) + len(files)


def sweep_table_orphans(
    store: ObjectStore, table: TableStore, grace_seconds: float, now: float
) -> list[str]:
    """Delete files that nothing names, last modified before `now - grace_seconds` (in seconds since
    1970); their names. Reads every version. Raises CorruptObjectError when one cannot be read:
    nothing is deleted then."""
    # What is old is listed before what is named: a file that is named meanwhile is not missed.
    old = [info for info in _files(store) if _is_older(info, now - grace_seconds)]
    named = {file.name for one in table.compactions() for file in one.files}
    numbers = table.versions()
    if numbers and len(numbers) <= numbers[-1] - numbers[0]:
        _log.warning("orphans of %s are kept, because a version is missing", table.url)
        return []
    for version in in_parallel(table.read_version, numbers):
        named |= version.object_names() if version else frozenset()
    orphans = sorted(info.name for info in old if info.name not in named)
    if orphans:
        store.delete(orphans)
    return orphans


def _files_if_readable(table: TableStore, number: int) -> frozenset[str]:
    # Files that only a damaged version named become orphans, for the orphan sweep.
    try:
        version = table.read_version(number)
    except CorruptObjectError:
        return frozenset()
    return version.object_names() if version else frozenset()


def _files(store: ObjectStore) -> list[ObjectInfo]:
    """Files of rows, and what was never published."""
    writers = store.list_directories(layout.DATA)
    batches = [name for names in in_parallel(store.list_directories, writers) for name in names]
    listings = in_parallel(store.list, batches)
    files = [one for listing in listings for one in listing if layout.parse_table_file(one.name)]
    return [*files, *store.list(UNPUBLISHED)]


def _is_older(info: ObjectInfo, time: float) -> bool:
    return info.modified is not None and info.modified < time
