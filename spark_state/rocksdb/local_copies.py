"""Local recovery: tables of rows that are in the store, and on the local disk, too.

    <folder>/<owner>/<name of the table's object>       a link to the file of a database

A host that uploads or downloads tables links them here. The folder is that of an executor, not of a
host: a host that is started after one was killed finds what that one had, and downloads only the
other tables. The names are unique in the store and tables never change, so a copy is right if its
bytes are: who takes it checks them. An owner, which is a subtask, keeps the tables of its latest
snapshot only.
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
    """The copies below `folder`, seen by one `owner`, whose name is that of a directory."""

    folder: Path
    owner: str

    def find(self, part: FilePart) -> Path | None:
        """A whole copy of a table, whoever has it; None if there is none. Reads all of it, and
        deletes one that is not whole: it would keep its name from the table that is downloaded."""
        name = _name_of(part)
        for path in self.folder.glob(f"*/{name}"):
            try:
                if _checksum(path) == part.checksum:
                    return path
            except FileNotFoundError:
                continue  # its owner has just let it go
            except OSError as error:
                _log.warning("%s cannot be read, and is downloaded again: %s", path, error)
            else:
                _log.warning("%s is not the table that was uploaded; it is downloaded again", path)
            with suppress(OSError):
                path.unlink()
        return None

    def keep(self, files: Path, tables: Mapping[str, FilePart]) -> None:
        """Link the tables in `files`, by their local names, and let go of all others that the owner
        has. They only save time: a disk that refuses costs no more than a warning."""
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
    """Where a database lives: its `folder`; `memory`, None for that of RocksDB's defaults; the
    `copies` that it keeps, None for none; its `settings`."""

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
