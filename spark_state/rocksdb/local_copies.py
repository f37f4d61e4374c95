"""Local recovery: copies on the local disk of tables in the store.

    <folder>/<owner>/<name of the table's object>       a link to the file of a database

A host links each uploaded or downloaded table here. The folder belongs to an executor, not to a
host. When a host is killed, the next host finds the tables of the killed host and downloads only
the other tables. Table names are unique in the store and tables never change, so a copy with the
right bytes is right. The user of a copy checks the bytes. An owner is a subtask and keeps only the
tables of the latest snapshot.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from checkpoint_store.files.held_folder import LOCK
from checkpoint_store.files.state_handle import FilePart
from spark_state.rocksdb.database_options import DatabaseMemory
from spark_state.rocksdb.database_settings import DatabaseSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """The copies below `folder`, for one `owner`. The owner's name is the name of a directory."""

    folder: Path
    owner: str

    def find(self, part: FilePart) -> Path | None:
        """Return the path of an intact copy of a table, from any owner; None if no such copy
        exists. Reads the whole copy. Deletes a damaged copy, which would block the name for the
        downloaded table."""
        name = _name_of(part)
        for path in self.folder.glob(f"*/{name}"):
            problem = "it is not the table that was uploaded"
            try:
                if _checksum(path) == part.checksum:
                    return path
            except FileNotFoundError:  # its owner has just deleted the copy
                continue
            except OSError as error:
                problem = str(error)
            _log.warning("%s cannot be used and is downloaded again: %s", path, problem)
            with suppress(OSError):
                path.unlink()
        return None

    def keep(self, files: Path, tables: Mapping[str, FilePart]) -> None:
        """Link the tables in `files`, by local name, and delete all other tables of the owner.
        Copies only save time: a failing disk costs no more than a warning."""
        own = self.folder / self.owner
        wanted = {_name_of(part): files / name for name, part in tables.items()}
        try:
            own.mkdir(parents=True, exist_ok=True)
            for name, path in wanted.items():
                _link(path, own / name)
            for path in own.iterdir():
                if path.name not in wanted and path.name != LOCK:
                    path.unlink()
        except OSError:
            _log.warning("%s has no local copies", own, exc_info=True)
            shutil.rmtree(own, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class DatabaseHome:
    """The place and the settings of a database.

    - `folder`: the local folder.
    - `memory`: the shared memory, None for RocksDB's default memory.
    - `copies`: the local copies of tables, None for no copies.
    - `settings`: the options of the database.
    """

    folder: Path
    memory: DatabaseMemory | None = None
    copies: LocalCopies | None = None
    settings: DatabaseSettings = field(default_factory=DatabaseSettings)


def _name_of(part: FilePart) -> str:
    return PurePosixPath(part.name).name


def _link(path: Path, link: Path) -> None:
    with suppress(FileExistsError):
        os.link(path, link)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
