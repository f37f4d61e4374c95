"""The names of all objects of a table. Pure.

    table.json
    versions/<version>.json
    compactions/<version>-<unique>.json
    data/<writer>/<batch>/changelog-<subtask>-<attempt>-<unique>.arrow
    data/<writer>/<batch>/snapshot-<subtask>-<attempt>-<unique>.arrow
    data/<writer>/<batch>/alive-<subtask>-<attempt>-<unique>.json

Numbers are decimal and padded with zeros: version, batch and attempt to 19 digits, subtask to 5.
`unique` is 12 hex digits that the writer draws (I1). `writer` is the id of the query or batch job
that wrote the file's rows, or `compacted`. `batch` is the number of the query's batch, 0 for a
batch job, and the version for a compaction.

A version has the same name for every writer: the writer that creates the name first wins. Every
other name belongs to one writer. Names that do not parse are not cowstate's and are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from checkpoint_store.files.epoch_file_name import parse_epoch_file_name
from checkpoint_store.object_names import COMPACTIONS, DATA, TABLE, VERSIONS

_UNIQUE = r"(?P<unique>[0-9a-f]{12})"
_VERSION = re.compile(rf"{VERSIONS}/(?P<version>\d{{19}})\.json")
_COMPACTION = re.compile(rf"{COMPACTIONS}/(?P<version>\d{{19}})-{_UNIQUE}\.json")
_BATCH = re.compile(rf"{DATA}/(?!\.{{1,2}}/)(?P<writer>[^/]+)/(?P<batch>\d{{19}})")


def may_be_beside_a_table(name: str) -> bool:
    """True if an object or directory of this name may lie in a table's directory: the name is one
    of a table's own names, or begins with `_` or `.`, by which Spark recognizes names without
    data."""
    return name in (TABLE, VERSIONS, COMPACTIONS, DATA) or name.startswith(("_", "."))


def version_name(version: int) -> str:
    """The name of a version's document."""
    return f"{VERSIONS}/{version:019d}.json"


def parse_version(name: str) -> int | None:
    """The version of a name under `versions/`; None if the name does not parse."""
    match = _VERSION.fullmatch(name)
    return None if match is None else int(match["version"])


@dataclass(frozen=True, slots=True)
class CompactionName:
    """The name of a compaction's document."""

    version: int
    unique: str

    def __str__(self) -> str:
        return f"{COMPACTIONS}/{self.version:019d}-{self.unique}.json"


def parse_compaction(name: str) -> CompactionName | None:
    """Parse a name under `compactions/`; None if the name does not parse."""
    match = _COMPACTION.fullmatch(name)
    if match is None:
        return None
    return CompactionName(int(match["version"]), match["unique"])


@dataclass(frozen=True, slots=True)
class BatchDirectory:
    """The directory of the files of one batch of a writer."""

    writer: str
    batch: int

    def __str__(self) -> str:
        return f"{batches_of_writer(self.writer)}/{self.batch:019d}"


def batches_of_writer(writer: str) -> str:
    """The directory of a writer, with a directory for each batch that has files."""
    return f"{DATA}/{writer}"


def parse_batch_directory(name: str) -> BatchDirectory | None:
    """Parse the name of a directory of a batch; None if the name does not parse."""
    match = _BATCH.fullmatch(name)
    return None if match is None else BatchDirectory(match["writer"], int(match["batch"]))


def parse_table_file(name: str) -> BatchDirectory | None:
    """The batch directory in the name of a file of rows; None for the name of anything else."""
    file = parse_epoch_file_name(name)
    if file is None or file.kind == "alive":
        return None
    return parse_batch_directory(file.directory)
