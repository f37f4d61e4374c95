"""Objects in a local directory, see object_store.

Local directories are written directly and not through fsspec, because durability needs fsync, and
creation needs a hard link.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError, StoreAccessError
from checkpoint_store.objects.client_errors import UNUSABLE
from checkpoint_store.objects.object_info import UNPUBLISHED, ObjectInfo, below_store

_T = TypeVar("_T")

# Each failed try has met another deletion.
_CREATE_TRIES = 100
# Errors of file systems without hard links, or without hard links between their parts.
_NO_HARD_LINKS = {
    errno.EMLINK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EXDEV,
}

_HARD_LINKS_NEEDED = (
    "A store in a directory needs hard links, which this file system does not make: put the store "
    "on one that does (ext4, XFS, APFS, NFS), or into an object store (s3://...)"
)


@dataclass(frozen=True, slots=True)
class LocalObjectStore:
    """A directory with synced files and directories. No name and no link leads out of the
    directory.

    A writer fills a file under its own unique name, and then makes a hard link from the object's
    name to the file. The link is made whole or not at all, and fails if the name is taken. A writer
    deletes only its own name.
    """

    root: Path

    @property
    def url(self) -> str:
        """file:// and the absolute path."""
        return f"file://{self.root}"

    def put(self, name: str, data: bytes) -> None:
        """See ObjectStore. Raises StoreAccessError if the file system has no hard links."""
        own = self.root / UNPUBLISHED / uuid4().hex
        with self._access():
            path = self._path(name)
            self._path(UNPUBLISHED)
            try:
                write_synced(own, data)
                is_new = self._link(own, path)
            finally:
                with suppress(OSError):
                    own.unlink()
            sync_directory(path.parent)
        if not is_new:
            raise ObjectExistsError(self.url, name)

    def _link(self, own: Path, path: Path) -> bool:
        """Give a file a second name. Return False if another file has the name."""
        try:
            create_in(path.parent, lambda: os.link(own, path))
        except FileExistsError:
            # A network file system repeats its request after a lost answer, and then meets its own
            # link.
            return own.stat().st_nlink > 1
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise StoreAccessError(self.url, f"{error}. {_HARD_LINKS_NEEDED}") from error
            raise
        return True

    def get(self, name: str) -> bytes:
        with self._access():
            try:
                path = self._path(name)
                return self._current(path, path.read_bytes)
            except FileNotFoundError as error:
                raise ObjectMissingError(self.url, name) from error

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self._access():
            try:
                path = self._path(name)
                with self._current(path, lambda: path.open("rb")) as file:
                    file.seek(start)
                    return file.read(length)
            except FileNotFoundError as error:
                raise ObjectMissingError(self.url, name) from error

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        infos = []
        for entry in self._scan(directory):
            if entry.name.startswith(prefix):
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        status = entry.stat()
                        name = f"{directory}/{entry.name}"
                        infos.append(ObjectInfo(name, status.st_size, status.st_mtime))
        return infos

    def list_directories(self, directory: str) -> Sequence[str]:
        return [
            f"{directory}/{entry.name}"
            for entry in self._scan(directory)
            if entry.is_dir() and entry.name != UNPUBLISHED
        ]

    def _scan(self, directory: str) -> Sequence[os.DirEntry[str]]:
        with self._access():
            try:
                path = self._path(directory) if directory else self.root
                with self._current(path, lambda: os.scandir(path)) as entries:
                    return [*entries]
            except FileNotFoundError:
                return []

    def delete(self, names: Sequence[str]) -> None:
        """See ObjectStore. Directories that become empty are removed."""
        with self._access():
            paths = [self._path(name, is_followed=False) for name in names]
            for path in paths:
                path.unlink(missing_ok=True)
            for parent in {path.parent for path in paths} - {self.root}:
                with suppress(FileNotFoundError):
                    sync_directory(parent)
                with suppress(OSError):
                    parent.rmdir()

    def _current(self, path: Path, use: Callable[[], _T]) -> _T:
        """Return the result of `use`, which uses the file at `path`. The client of a network file
        system may say from its cache that a file is missing. Opening the directories above the file
        makes the client ask its server. So if `use` finds no file, the directories are opened, and
        `use` is called again. Raises FileNotFoundError."""
        try:
            return use()
        except FileNotFoundError:
            below = path.relative_to(self.root).parents
            for directory in reversed([self.root / above for above in below]):
                os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
            return use()

    def _path(self, name: str, *, is_followed: bool = True) -> Path:
        """Return the path of a name. `is_followed`: the caller follows the path's last part if it
        is a link. Raises StoreAccessError for a name or a link that leads out of the store."""
        below = below_store(self.url, name)
        path = self.root / below
        if not self._has_link(below if is_followed else os.path.dirname(below)):
            return path
        reached = os.path.realpath(path if is_followed else path.parent)
        if not Path(reached).is_relative_to(os.path.realpath(self.root)):
            raise StoreAccessError(
                self.url,
                f"{name!r} is reached by a link out of the store, which leads to {reached}",
            )
        return path

    def _has_link(self, below: str) -> bool:
        """Return True if a part of a path below the root is a symbolic link. Resolving the whole
        path would cost a call for each directory above the root, too."""
        reached = str(self.root)
        for part in below.split("/"):
            reached = f"{reached}/{part}"
            if os.path.islink(reached):
                return True
        return False

    @contextmanager
    def _access(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in UNUSABLE:
                raise StoreAccessError(self.url, str(error)) from error
            raise


def write_synced(path: Path, data: bytes) -> None:
    """Create a file with these bytes, and the missing directories above the file. The bytes are
    durable on return; the name is durable only after the directory is synced. Raises
    FileExistsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = create_in(path.parent, lambda: os.open(path, flags, 0o666))
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        _sync(descriptor)
    finally:
        os.close(descriptor)


def create_in(directory: Path, create: Callable[[], _T]) -> _T:
    """Call `create`, which creates something in `directory`. Make the directory first if it is
    missing. If a deletion removes the new, empty directory before `create` runs, both steps are
    repeated. Raises OSError if deletions remove the directory again and again."""
    for _ in range(_CREATE_TRIES):
        with suppress(FileNotFoundError):
            return create()
        _make_directories(directory)
    raise OSError(errno.EBUSY, f"{directory} is deleted as fast as it is made")


def _make_directories(path: Path) -> None:
    """Make `path` and its parents, each durable."""
    if not path.is_dir():
        _make_directories(path.parent)
        with suppress(FileExistsError):
            path.mkdir()
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Return when the disk has the data. On macOS fsync leaves the data in the disk's cache, so the
    full sync is tried first. A file system without full sync, such as a network file system,
    refuses, and fsync is used."""
    if full_sync := getattr(fcntl, "F_FULLFSYNC", None):
        with suppress(OSError):
            fcntl.fcntl(descriptor, full_sync)
            return
    os.fsync(descriptor)
