"""The interface to object storage: immutable objects by name under one URL.

An object is created whole, read whole or in part, listed and deleted; never changed, renamed or
appended to (I1). Local directories are written directly, because durability there needs fsync and
creation needs a hard link; every other URL goes through fsspec. Only this module imports fsspec,
and only for such a URL: Spark starts a process for each read and write, and most stores are local.

Stores hold no connection. Several threads may use one store; a store may be pickled, and used after
a fork.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from checkpoint_store.errors import (
    CheckpointStoreError,
    ObjectExistsError,
    ObjectMissingError,
    StoreAccessError,
)
from checkpoint_store.object_names import parse_object_name
from checkpoint_store.objects.client_errors import (
    UNUSABLE,
    client_error_code,
    telling_client_errors,
)
from checkpoint_store.objects.secret_options import without_secrets
from checkpoint_store.objects.store_url import absolute_url, client_options, refuse_password
from checkpoint_store.objects.synced_files import create_in, sync_directory, write_synced

_T = TypeVar("_T")

# Directory of a local store for files that are not published yet. A killed writer leaves its file
# there, for the orphan sweep.
UNPUBLISHED = ".unpublished"

_log = logging.getLogger(__name__)
_DELETING_THREADS = 16
# pyarrow's message about a client's library that cannot be loaded.
_NO_LIBRARY = re.compile("(Unable|Prior attempt) to load lib")
_NAME_TAKEN = {"412", "PreconditionFailed"}
_NO_CONDITIONAL_CREATE = {"501", "NotImplemented"}
# URLs of stores that refused a conditional create. Asking again would send each body twice.
_without_conditional_create: set[str] = set()
# Protocols whose client can list by prefix; the contract tests cover such listings.
_LISTING_BY_PREFIX = ("s3://", "s3a://")
_BEYOND_THE_END = {"416", "InvalidRange"}
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
class ObjectInfo:
    """An object's entry in a listing. `modified`: seconds since 1970, None if the store does not
    say."""

    name: str
    length: int
    modified: float | None

    @property
    def modified_ms(self) -> int:
        """The time of the last change in milliseconds since 1970, 0 if unknown."""
        return int((self.modified or 0) * 1000)


class ObjectStore(Protocol):
    """Objects by '/'-separated names under one URL. All methods raise StoreAccessError if the store
    cannot be used as configured (permission, credentials, read-only, no such bucket), and OSError
    for every failure that may pass."""

    @property
    def url(self) -> str:
        """The store's URL, for messages."""

    def put(self, name: str, data: bytes) -> None:
        """Create an object, durable on return. No reader ever finds a part of the object. Raises
        ObjectExistsError if the name is taken and the store can tell; callers never rely on the
        error, because not every store can tell."""

    def get(self, name: str) -> bytes:
        """Return the whole object. Raises ObjectMissingError."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return the `length` bytes of an object from byte `start` on, at least one; fewer, or
        none, if the object ends before. Raises ObjectMissingError. If the object is shorter than
        `length`, a server without range requests may give other bytes: callers have checksums."""

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        """Return the current objects directly in `directory` whose names there begin with `prefix`,
        in any order. In `UNPUBLISHED`, return the objects that writers have begun."""

    def list_directories(self, directory: str) -> Sequence[str]:
        """Return the names of the current directories directly in `directory`, without
        `UNPUBLISHED`."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing object is no error."""


def open_object_store(url: str, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Open the store at `url`: a path, file://, or any URL that fsspec knows. fsspec's client gets
    `storage_options` and the options in the URL. Nothing is created or contacted yet. Raises
    StoreAccessError."""
    url = absolute_url(url)
    protocol, separator, path = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return LocalObjectStore(Path(path if separator else url).absolute())
    refuse_password(url)
    url = url.rstrip("/")
    try:
        import fsspec

        client = fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        raise StoreAccessError(url, f"no file system is known for {protocol}://") from error
    except ImportError as error:
        raise StoreAccessError(url, _what_to_install(protocol, error)) from error
    client_options(url, client, storage_options or {})
    return FsspecObjectStore(url, dict(storage_options or {}))


def _what_to_install(protocol: str, error: ImportError) -> str:
    """Name the missing package, and the command that installs the package for this interpreter. For
    other clients fsspec's error names the package. s3fs brings fsspec."""
    if protocol in ("s3", "s3a"):
        return f"{error}: {sys.executable} -m pip install s3fs"
    if error.name == "fsspec":
        client = f"and the package that fsspec needs for {protocol}://"
        return f"{error}: {sys.executable} -m pip install fsspec, {client}"
    return f"{error}: install the package it names for {sys.executable}"


def below_store(url: str, name: str) -> str:
    """Return `name` if the name stays below its store. Raises StoreAccessError for any other
    name."""
    if parse_object_name(name) is None:
        raise StoreAccessError(url, f"{name!r} is no name of an object in it")
    return name


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
            with suppress(FileNotFoundError):
                if entry.name.startswith(prefix) and entry.is_file():
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
        """Return the file system's current answer about a path. A client of a network file system
        may say from its cache that a file is missing. The client asks its server when the
        directories above are opened. Raises FileNotFoundError."""
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
        path = self.root / below_store(self.url, name)
        reached = os.path.realpath(path if is_followed else path.parent)
        if not Path(reached).is_relative_to(os.path.realpath(self.root)):
            raise StoreAccessError(
                self.url,
                f"{name!r} is reached by a link out of the store, which leads to {reached}",
            )
        return path

    @contextmanager
    def _access(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in UNUSABLE:
                raise StoreAccessError(self.url, str(error)) from error
            raise


@dataclass(frozen=True, slots=True)
class FsspecObjectStore:
    """Any store that fsspec knows.

    `mode="create"` is a conditional create on S3, and a check before the write in memory. A file
    system that ignores the mode overwrites. Overwriting is harmless if a name is unique, or if all
    writers of a name write the same bytes. Listings are never cached. Retries of the client are
    switched off where they would multiply with the retries of RetryingObjectStore.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def put(self, name: str, data: bytes) -> None:
        with self._access():
            try:
                mode = "overwrite" if self.url in _without_conditional_create else "create"
                self._filesystem().pipe_file(self._path(name), data, mode=mode)
            except FileExistsError as error:
                raise ObjectExistsError(self.url, name) from error
            except OSError as error:
                code = client_error_code(error)
                if code in _NAME_TAKEN:
                    raise ObjectExistsError(self.url, name) from error
                if code not in _NO_CONDITIONAL_CREATE:
                    raise
                _note_no_conditional_create(self.url)
                self._filesystem().pipe_file(self._path(name), data)

    def get(self, name: str) -> bytes:
        with self._access():
            try:
                data: bytes = self._filesystem().cat_file(self._path(name))
            except FileNotFoundError as error:
                raise ObjectMissingError(self.url, name) from error
            return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self._access():
            try:
                data: bytes = self._filesystem().cat_file(
                    self._path(name), start=start, end=start + length
                )
            except FileNotFoundError as error:
                raise ObjectMissingError(self.url, name) from error
            except (ConnectionError, PermissionError, TimeoutError, CheckpointStoreError):
                raise
            except Exception as error:
                if client_error_code(error) in _BEYOND_THE_END or self._ends_by(name, start):
                    return b""
                raise
            # A server without range requests answers with the whole object.
            return data if len(data) <= length else data[start : start + length]

    def _ends_by(self, name: str, start: int) -> bool:
        """Return True if an object certainly has no byte from `start` on. Clients have many errors
        for a range that begins at the end or later, and the same errors may mean something else."""
        with suppress(Exception):
            return int(self._filesystem().info(self._path(name))["size"]) <= start
        return False

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return [
            ObjectInfo(name, int(entry["size"]), _modified(entry))
            for name, entry in self._entries(directory, prefix)
            if entry["type"] == "file"
        ]

    def list_directories(self, directory: str) -> Sequence[str]:
        return [n for n, entry in self._entries(directory) if entry["type"] == "directory"]

    def _entries(self, directory: str, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
        filesystem = self._filesystem()
        path = self._path(directory) if directory else f"{self.url}/"
        with self._access():
            filesystem.invalidate_cache(path)
            try:
                if prefix and self.url.startswith(_LISTING_BY_PREFIX):
                    # The server leaves out the names without the prefix, which may be very many.
                    listed = filesystem.find(path, detail=True, prefix=prefix)
                    entries = [*listed.values()]
                else:
                    entries = filesystem.ls(path, detail=True)
            except FileNotFoundError:
                return
        for entry in entries:
            # Some clients also list the directory's own placeholder object.
            parent, _, base = entry["name"].rstrip("/").rpartition("/")
            in_directory = parent.strip("/") == filesystem._strip_protocol(path).strip("/")
            if in_directory and base.startswith(prefix):
                yield f"{directory}/{base}", entry

    def delete(self, names: Sequence[str]) -> None:
        if len(names) > 1:
            with ThreadPoolExecutor(min(_DELETING_THREADS, len(names))) as pool:
                for _ in pool.map(self._delete, names):
                    pass
        else:
            for name in names:
                self._delete(name)

    def _delete(self, name: str) -> None:
        with self._access(), suppress(FileNotFoundError):
            self._filesystem().rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.url}/{below_store(self.url, name)}"

    def _filesystem(self) -> Any:
        protocol = self.url.partition("://")[0]
        # fsspec keeps one instance per process and options. A new look-up survives a fork.
        try:
            import fsspec

            client = fsspec.get_filesystem_class(protocol)
            options = client_options(self.url, client, self.storage_options)
            options = {"use_listings_cache": False, **options}
            if protocol in ("s3", "s3a"):
                config = {"retries": {"total_max_attempts": 1}, **options.get("config_kwargs", {})}
                options["config_kwargs"] = config
            filesystem = client(**options)
        except ImportError as error:
            raise StoreAccessError(self.url, _what_to_install(protocol, error)) from error
        except (TypeError, ValueError) as error:
            problem = without_secrets(f"{type(error).__name__}: {error}", self.storage_options)
            raise StoreAccessError(self.url, problem) from None
        except OSError as error:
            if _NO_LIBRARY.search(str(error)) is None:
                raise
            problem = (
                f"{str(error).splitlines()[0]}. Install it, and say where it is: for HDFS libhdfs "
                "with ARROW_LIBHDFS_DIR, Java with JAVA_HOME, Hadoop's jars with CLASSPATH"
            )
            raise StoreAccessError(self.url, problem) from error
        if protocol in ("s3", "s3a"):
            filesystem.retries = 1
        return filesystem

    def _access(self) -> AbstractContextManager[None]:
        def listed() -> None:
            self._filesystem().ls(self.url)

        return telling_client_errors(self.url, self.storage_options, listed)


def _note_no_conditional_create(url: str) -> None:
    """Log a warning, and remember that objects of this store are written without the condition."""
    _without_conditional_create.add(url)
    _log.warning(
        "%s answers that it cannot create an object on the condition that its name is free "
        "(NotImplemented), so objects are written without it. Two writers of a table at the same "
        "moment can lose a version there: let one query at a time write it, and stop a query "
        "before you start it elsewhere",
        url,
    )


def _modified(entry: Mapping[str, Any]) -> float | None:
    for key in ("mtime", "LastModified", "last_modified", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, float | int):
            return float(value)
    return None
