"""Carries out the requests of the state store provider on an object store. See frames for the form
of a request.

    request                                      body      answer
    open    format, url, options, retry_seconds            {}
    put     name                                 object    {}
    put     name, file                                     {}
    get     name, start, length                            {}, and the bytes; fewer at the object's
                                                           end
    list    directory, prefix                              objects: [[name in directory, bytes], …]
    delete  names                                          {}
    sweep                                                  {}

In a put with `file`, the object is in the local file with this path. A sweep deletes the leftovers
of killed writers.

Names are relative to the URL. An object is created once, and never overwritten (I1). Two writers
never use the same name. So if a put finds its own bytes under the name, an earlier try of the same
put succeeded, and only the answer was lost.

An answer with an error has a word in `error`, and a `message` for the user:

    missing       there is no such object
    exists        the name is taken by other bytes
    access        the store cannot be used as configured; trying again changes nothing
    unavailable   the store failed for longer than `retry_seconds`
    failed        anything else; another try may succeed
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from checkpoint_store.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAccessError,
    StoreUnavailableError,
)
from checkpoint_store.objects.deletion import time_of_store
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state.gateway.frames import FORMAT, Frame

GRACE_SECONDS = 24 * 3600.0
# From this size on s3fs sends slices. s3fs gives a smaller object to the S3 client whole, and the
# S3 client does not accept a memory map.
_MAPPED_BYTES = 100 << 20
_CUT_ANSWERS = 5
_CONNECTIONS = 64
_PARTS_AT_ONCE = 2

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ObjectMissingError, "missing"),
    (ObjectExistsError, "exists"),
    (StoreAccessError, "access"),
    (StoreUnavailableError, "unavailable"),
)


def opened_objects(request: Frame) -> StoredObjects:
    """Open the store that the first request of a connection names. Raises StoreAccessError, and
    ValueError for a request of another release."""
    header = request.header
    if header.get("do") != "open" or header.get("format") != FORMAT:
        raise ValueError(
            f"the jar of cowstate that asks is not of the release of the cowstate installed for "
            f"Python, which has format {FORMAT}: install the same release on all machines"
        )
    url = header["url"]
    store = open_object_store(url, with_connections(url, header["options"]))
    return StoredObjects(RetryingObjectStore(store, header["retry_seconds"]))


def with_connections(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Add two options for S3: enough connections for all stores of an executor, because the stores
    commit at the same time, and a limit on the parts of a large object in memory."""
    if not url.startswith(("s3://", "s3a://")):
        return dict(options)
    config = {"max_pool_connections": _CONNECTIONS, **options.get("config_kwargs", {})}
    return {"max_concurrency": _PARTS_AT_ONCE, **options, "config_kwargs": config}


def answer_of_error(error: Exception) -> Frame:
    """Return the answer that reports an error to the provider."""
    for kind, word in _KINDS:
        if isinstance(error, kind):
            return Frame({"error": word, "message": str(error)})
    return Frame({"error": "failed", "message": f"{type(error).__name__}: {error}"})


class StoredObjects:
    """Answers the requests of one connection, on one store. `now` gives seconds since 1970."""

    def __init__(self, store: ObjectStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._requests: dict[str, Callable[[Mapping[str, Any], bytes], Frame]] = {
            "put": self._put,
            "get": self._get,
            "list": self._list,
            "delete": self._delete,
            "sweep": self._sweep,
        }

    def answer(self, request: Frame) -> Frame:
        """Carry out a request. Every error becomes an answer; nothing is raised."""
        try:
            return self._requests[request.header["do"]](request.header, request.body)
        except Exception as error:  # a client library may raise anything
            return answer_of_error(error)

    def _put(self, header: Mapping[str, Any], body: bytes) -> Frame:
        if "file" not in header:
            self._create(header["name"], body)
        else:
            with _content(Path(header["file"])) as data:
                self._create(header["name"], data)
        return Frame()

    def _create(self, name: str, data: bytes) -> None:
        try:
            self._store.put(name, data)
        except ObjectExistsError:
            if memoryview(data) != self._range(name, 0, len(data) + 1):
                raise

    def _get(self, header: Mapping[str, Any], _: bytes) -> Frame:
        return Frame(body=self._range(header["name"], header["start"], header["length"]))

    def _range(self, name: str, start: int, length: int) -> bytes:
        """Read a range of an object; the result is shorter at the object's end. Raises OSError if
        the store repeatedly gives too few bytes before the end."""
        for _ in range(_CUT_ANSWERS):
            data = self._store.get_range(name, start, length)
            if len(data) == length or self._ends_at(name, start + len(data)):
                return data
        raise OSError(f"the answers that hold {name} of {self._store.url} are cut short")

    def _ends_at(self, name: str, end: int) -> bool:
        """Return True if the object has no bytes after `end`. Asks the store for a listing: the
        length of an answer does not tell, because the store may cut an answer short."""
        directory, _, base = name.rpartition("/")
        listed = {info.name: info.length for info in self._store.list(directory, base)}
        return listed.get(name, 0) <= end

    def _list(self, header: Mapping[str, Any], _: bytes) -> Frame:
        infos = self._store.list(header["directory"], header["prefix"])
        return Frame({"objects": [[info.name.rpartition("/")[2], info.length] for info in infos]})

    def _delete(self, header: Mapping[str, Any], _: bytes) -> Frame:
        self._store.delete(header["names"])
        return Frame()

    def _sweep(self, _header: Mapping[str, Any], _: bytes) -> Frame:
        """Delete objects that a writer began more than a day ago and never published (I8)."""
        limit = time_of_store(self._store, self._now()) - GRACE_SECONDS
        begun = self._store.list(UNPUBLISHED)
        old = [info.name for info in begun if info.modified is not None and info.modified < limit]
        if old:
            self._store.delete(old)
        return Frame()


@contextmanager
def _content(file: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; a large file is mapped, and read while the store sends the
    bytes."""
    with file.open("rb") as stream:
        if file.stat().st_size < _MAPPED_BYTES:
            yield stream.read()
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            # A map has a length, slices and a buffer: stores need no further features of bytes.
            yield cast(bytes, mapped)
