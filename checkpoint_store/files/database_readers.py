"""Who reads the rows of a database: a plug-in for each engine.

The rows of a database are written as its engine needs them, so a reader of them comes with the
engine: as an entry point of an installed package, in the group `cowstate.database_readers`, with
the engine's name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.database_contents import DatabaseContents
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange

GROUP = "cowstate.database_readers"


@dataclass(eq=False)
class DatabaseReaderError(CheckpointStoreError):
    """This Python cannot read the databases of an engine. `problem`: what an import said, None if
    cowstate is not installed as a package."""

    url: str
    name: str
    engine: str
    problem: str | None

    def __str__(self) -> str:
        cannot = f"cannot read it ({self.problem})"
        if self.problem is None:
            cannot = "has no installed package that reads it"
        return (
            f"{self.name} in {self.url} is a database of {self.engine}, and {sys.executable} "
            f"{cannot}: pip install 'cowstate[{self.engine}]', on all executors if it is one of "
            f"Spark. A query with spark.cowstate.{self.engine}.incremental=false writes snapshots "
            "that need nothing more"
        )


class DatabaseReader(Protocol):
    """Reads a database of one engine."""

    def __call__(
        self, folder: Path, contents: DatabaseContents, key_groups: KeyGroupRange
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the key groups, sorted as in a snapshot. `folder` has the files, which only
        this call uses."""


def database_reader(contents: DatabaseContents, source: Source) -> DatabaseReader:
    """The reader of a database, which `source` describes. Raises DatabaseReaderError."""
    readers = entry_points(group=GROUP, name=contents.engine)
    if not readers:
        raise DatabaseReaderError(source.url, source.name, contents.engine, None)
    try:
        return cast(DatabaseReader, next(iter(readers)).load())
    except ImportError as error:
        raise DatabaseReaderError(source.url, source.name, contents.engine, str(error)) from error
