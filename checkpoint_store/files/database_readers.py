"""Who reads the rows of a database: a plug-in for each engine.

The rows of a database are written as its engine needs them, so a reader of them comes with the
engine: as an entry point of an installed package, in the group `cowstate.database_readers`, with
the engine's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from checkpoint_store.errors import DatabaseReaderError
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange

GROUP = "cowstate.database_readers"


class DatabaseReader(Protocol):
    """Reads a database of one engine."""

    def __call__(
        self, folder: Path, contents: DatabaseContents, key_groups: KeyGroupRange
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the key groups, sorted as in a snapshot. `folder` has the files, which only
        this call uses."""


def database_reader(contents: DatabaseContents, source: Source) -> DatabaseReader:
    """The reader of a database, which `source` describes. Raises DatabaseReaderError."""
    found = entry_points(group=GROUP, name=contents.engine)
    if not found:
        raise DatabaseReaderError(source.url, source.name, contents.engine, None)
    try:
        return cast(DatabaseReader, next(iter(found)).load())
    except ImportError as error:
        raise DatabaseReaderError(source.url, source.name, contents.engine, error.name) from error
