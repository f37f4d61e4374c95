"""An object store in memory that counts requests, and takes as long as S3 for each request.

Many threads may use the store at once. Listings come in pages, as on S3, and each page counts as a
request.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_info import ObjectInfo

PAGE = 1000


@dataclass(frozen=True)
class Latencies:
    """Seconds per request, and bytes per second over a connection."""

    put: float = 0.030
    get: float = 0.015
    list: float = 0.030
    bytes_per_second: float = 80e6


NO_LATENCIES = Latencies(0.0, 0.0, 0.0, float("inf"))


@dataclass(frozen=True)
class Prices:
    """Dollars per request: S3 Standard in us-east-1. Deletes cost nothing."""

    put: float = 0.005 / 1000
    list: float = 0.005 / 1000
    get: float = 0.0004 / 1000


@dataclass
class Counts:
    """Numbers of requests by kind, and bytes. `listed`: names in the answers of listings.
    `put_bytes` and `got_bytes`: bytes of all objects. `put_documents` and `got_documents`: bytes of
    `.json` objects only (manifests, groups, barriers)."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    listed: int = 0
    put_bytes: int = 0
    got_bytes: int = 0
    put_documents: int = 0
    got_documents: int = 0

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.puts + self.gets + self.lists + self.deletes

    def dollars(self, prices: Prices) -> float:
        """The price of the requests."""
        return self.puts * prices.put + self.lists * prices.list + self.gets * prices.get

    def minus(self, earlier: Counts) -> Counts:
        """The counts since `earlier`."""
        names = [field.name for field in fields(Counts)]
        return Counts(**{name: getattr(self, name) - getattr(earlier, name) for name in names})


class _Modelled(threading.local):
    seconds = 0.0


@dataclass
class CountedStore:
    """Objects by directory. `latencies`: how long requests take. `sleeps`: True if requests really
    sleep so long. Both can be set at any time."""

    url: str = "counted://store"
    latencies: Latencies = NO_LATENCIES
    sleeps: bool = True
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._modelled = _Modelled()
        self._objects: dict[str, bytes] = {}
        self._names: dict[str, list[str]] = {"": []}

    def put(self, name: str, data: bytes) -> None:
        """See ObjectStore."""
        self._wait(self.latencies.put, len(data))
        with self._lock:
            self.counts.puts += 1
            self.counts.put_bytes += len(data)
            self.counts.put_documents += len(data) * name.endswith(".json")
            if name in self._objects:
                raise ObjectExistsError(self.url, name)
            self._insert(name, data)

    def fill(self, name: str, data: bytes) -> None:
        """Put an object without counting a request."""
        with self._lock:
            self._insert(name, data)

    def _insert(self, name: str, data: bytes) -> None:
        self._objects[name] = data
        directory, _, base = name.rpartition("/")
        if directory not in self._names:
            self._names[directory] = []
            self._list_directory(directory)
        insort(self._names[directory], base)

    def _list_directory(self, directory: str) -> None:
        parent, _, base = directory.rpartition("/")
        entry = f"{base}/"
        if parent not in self._names:
            self._names[parent] = []
            self._list_directory(parent)
        if entry not in self._names[parent]:
            insort(self._names[parent], entry)

    def get(self, name: str) -> bytes:
        """See ObjectStore."""
        with self._lock:
            data = self._objects.get(name)
            length = len(data or b"")
            self.counts.gets += 1
            self.counts.got_bytes += length
            self.counts.got_documents += length * name.endswith(".json")
        self._wait(self.latencies.get, length)
        if data is None:
            raise ObjectMissingError(self.url, name)
        return data

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        """See ObjectStore."""
        names = [base for base in self._page(directory, prefix) if not base.endswith("/")]
        return [
            ObjectInfo(f"{directory}/{base}", len(self._objects[f"{directory}/{base}"]), 0.0)
            for base in names
            if f"{directory}/{base}" in self._objects
        ]

    def list_directories(self, directory: str) -> Sequence[str]:
        """See ObjectStore."""
        return [
            f"{directory}/{base.rstrip('/')}"
            for base in self._page(directory, "")
            if base.endswith("/")
        ]

    def _page(self, directory: str, prefix: str) -> Iterator[str]:
        with self._lock:
            names = self._names.get(directory, [])
            first = bisect_left(names, prefix)
            last = bisect_left(names, f"{prefix}\uffff") if prefix else len(names)
            shown = names[first:last]
            pages = max(1, -(-len(shown) // PAGE))
            self.counts.lists += pages
            self.counts.listed += len(shown)
        self._wait(pages * self.latencies.list, 0)
        return iter(shown)

    def delete(self, names: Sequence[str]) -> None:
        """See ObjectStore."""
        for name in names:
            self._wait(self.latencies.put, 0)
            with self._lock:
                self.counts.deletes += 1
                if self._objects.pop(name, None) is not None:
                    directory, _, base = name.rpartition("/")
                    entries = self._names[directory]
                    del entries[bisect_left(entries, base)]
                    self._drop_if_empty(directory)

    def _drop_if_empty(self, directory: str) -> None:
        """Remove a directory without objects, and its empty parents."""
        while directory and not self._names[directory]:
            del self._names[directory]
            directory, _, base = directory.rpartition("/")
            entries = self._names[directory]
            del entries[bisect_left(entries, f"{base}/")]

    def counted(self) -> Counts:
        """A copy of the counts until now."""
        with self._lock:
            return self.counts.minus(Counts())

    def _wait(self, seconds: float, length: int) -> None:
        total = seconds + length / self.latencies.bytes_per_second
        self._modelled.seconds += total
        if self.sleeps and total > 0:
            time.sleep(total)

    def modelled_seconds(self) -> float:
        """The seconds that the calling thread's requests have taken, or would have taken without
        `sleeps`."""
        return self._modelled.seconds
