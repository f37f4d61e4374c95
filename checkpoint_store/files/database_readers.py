"""Plug-ins that read the rows of databases, one plug-in per engine.

Each engine encodes the rows of its databases in its own way, so the reader comes with the engine:
as an entry point of an installed package, in the group `cowstate.database_readers`, under the
engine's name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

import pyarrow as pa

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange

GROUP = "cowstate.database_readers"


@dataclass(eq=False)
class DatabaseReaderError(CheckpointStoreError):
    """This Python cannot read the databases of an engine."""

    url: str
    name: str
    engine: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} is a database of {self.engine}, and {sys.executable} "
            f"cannot read it ({self.problem}): pip install 'cowstate[{self.engine}]', on all "
            f"executors if it is one of Spark. A query with spark.cowstate.{self.engine}"
            ".incremental=false writes snapshots that need nothing more"
        )


DatabaseReader = Callable[[Path, Source, DatabaseContents, KeyGroupRange], Iterator[pa.RecordBatch]]
"""Reads the rows of the key groups, sorted as in a snapshot, from a folder with copies of the
database's files. Only this call uses the folder."""


def database_reader(contents: DatabaseContents, source: Source) -> DatabaseReader:
    """Return the reader of a database. `source` describes the database. Raises
    DatabaseReaderError."""
    readers = entry_points(group=GROUP, name=contents.engine)
    if not readers:
        problem = "no installed package reads it"
        raise DatabaseReaderError(source.url, source.name, contents.engine, problem)
    try:
        return cast(DatabaseReader, next(iter(readers)).load())
    except ImportError as error:
        raise DatabaseReaderError(source.url, source.name, contents.engine, str(error)) from error
