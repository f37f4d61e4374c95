"""Local recovery: RocksDB tables that are in the store, kept also on the local disk.

    <folder>/<owner>/<name of the table's object>       a hard link to the table of a database

A host links each uploaded or downloaded table here. The folder belongs to the executor, not to a
host. If a host is killed, the next host finds the tables of the killed host and downloads only
missing tables. Before a copy is used, its checksum is compared. An owner is a subtask, and keeps
only the tables of its latest snapshot.
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
    """The copies below `folder`. `owner`: the subtask that keeps copies, as the name of a directory
    in `folder`."""

    folder: Path
    owner: str

    def find(self, part: FilePart) -> Path | None:
        """Return the path of an intact copy of a table, from any owner; None if there is no intact
        copy. Reads the whole copy. Deletes a damaged copy, so that `keep` can link the downloaded
        table under the same name."""
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
        """Link `tables` from the folder `files`, and delete all other copies of the owner.
        `tables`: the tables in the store, by the local name in `files`. If the disk fails, the call
        only logs a warning, because copies only save time."""
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
