"""Objects in any store that fsspec knows, see object_store.

Only this module imports fsspec, and only when a store needs fsspec. The import takes time, Spark
starts a process for each read and write, and most stores are local.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from inspect import signature
from typing import Any

from checkpoint_store.errors import (
    CheckpointStoreError,
    ObjectExistsError,
    ObjectMissingError,
    StoreAccessError,
)
from checkpoint_store.objects.client_errors import client_error_code, telling_client_errors
from checkpoint_store.objects.object_info import ObjectInfo, below_store
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.secret_options import without_secrets
from checkpoint_store.objects.store_url import client_options, refuse_password

_log = logging.getLogger(__name__)
# pyarrow's message about a client's library that cannot be loaded.
_NO_LIBRARY = re.compile("(Unable|Prior attempt) to load lib")
_NAME_TAKEN = {"412", "PreconditionFailed"}
_NO_CONDITIONAL_CREATE = {"501", "NotImplemented"}
# URLs of stores that refused a conditional create. Asking again would send each body twice.
_without_conditional_create: set[str] = set()
_S3 = ("s3://", "s3a://")
_BEYOND_THE_END = {"416", "InvalidRange"}


def open_fsspec_store(url: str, storage_options: Mapping[str, Any]) -> FsspecObjectStore:
    """Open the store at a URL that is no path. Nothing is created or contacted yet. Raises
    StoreAccessError."""
    refuse_password(url)
    url = url.rstrip("/")
    client_options(url, _client_of(url), storage_options)
    return FsspecObjectStore(url, dict(storage_options))


def _client_of(url: str) -> Any:
    """The class of fsspec's client for a URL. Raises StoreAccessError."""
    protocol = url.partition("://")[0]
    try:
        import fsspec

        return fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        raise StoreAccessError(url, f"no file system is known for {protocol}://") from error
    except ImportError as error:
        # For S3 the package is always s3fs, which installs fsspec, too. For other clients the error
        # names the package.
        way_out = f"install the package it names for {sys.executable}"
        if url.startswith(_S3):
            way_out = f"{sys.executable} -m pip install s3fs"
        raise StoreAccessError(url, f"{error}: {way_out}") from error


@dataclass(frozen=True, slots=True)
class FsspecObjectStore:
    """Any store that fsspec knows.

    An object is written with `mode="create"`: on S3 a conditional create; in fsspec's memory file
    system a check before the write. A file system that ignores the mode overwrites the object.
    Overwriting is harmless if a name is unique, or if all writers of a name write the same bytes.
    Listings are never cached. Retries of the client are switched off where they would multiply with
    the retries of RetryingObjectStore.
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
                is_s3 = self.url.startswith(_S3)
                options = _single_request(_client_of(self.url)) if is_s3 else {}
                data: bytes = self._filesystem().cat_file(self._path(name), **options)
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
        """Return True if the object is known to end at `start` or earlier. The error of a failed
        read does not tell, because clients raise many errors for a range behind the end, and raise
        the same errors for other reasons."""
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
                if prefix and self.url.startswith(_S3):
                    # The server leaves out the names without the prefix, which may be very many.
                    # The contract tests cover such listings for S3's client only.
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
        in_parallel(self._delete, names)

    def _delete(self, name: str) -> None:
        with self._access(), suppress(FileNotFoundError):
            self._filesystem().rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.url}/{below_store(self.url, name)}"

    def _filesystem(self) -> Any:
        client = _client_of(self.url)
        is_s3 = self.url.startswith(_S3)
        # fsspec keeps one instance per process and options. A new look-up survives a fork.
        try:
            options = client_options(self.url, client, self.storage_options)
            options = {"use_listings_cache": False, **options}
            if is_s3:
                config = {"retries": {"total_max_attempts": 1}, **options.get("config_kwargs", {})}
                options["config_kwargs"] = config
            filesystem = client(**options)
        except (ImportError, TypeError, ValueError) as error:
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
        if is_s3:
            filesystem.retries = 1
        return filesystem

    def _access(self) -> AbstractContextManager[None]:
        def listed() -> None:
            self._filesystem().ls(self.url)

        return telling_client_errors(self.url, self.storage_options, listed)


@cache
def _single_request(client: type) -> dict[str, int]:
    """Return options for `cat_file` that read an object with one request. Newer clients of S3 ask
    for the size of an object first, to read a large object in parts at once. Restores read many
    objects at once anyway."""
    read = getattr(client, "_cat_file", None)
    is_concurrent = read is not None and "max_concurrency" in signature(read).parameters
    return {"max_concurrency": 1} if is_concurrent else {}


def _note_no_conditional_create(url: str) -> None:
    """Log a warning, and remember that this store has no conditional create: the store cannot
    refuse to create an object whose name is taken."""
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
