"""Object stores that fail on purpose, at the interface where real stores fail."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_store import UNPUBLISHED, ObjectInfo, ObjectStore


@dataclass
class DictObjectStore:
    """Objects in a dict, created at the time `now`. Records reads and listings."""

    url: str = "dict://store"
    now: float | None = 0.0
    objects: dict[str, bytes] = field(default_factory=dict)
    modified: dict[str, float | None] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    listings: list[str] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        if name in self.objects:
            raise ObjectExistsError(self.url, name)
        self.objects[name] = data
        self.modified[name] = self.now

    def get(self, name: str) -> bytes:
        self.reads.append(name)
        if name not in self.objects:
            raise ObjectMissingError(self.url, name)
        return self.objects[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return DictObjectStore.get(self, name)[start : start + length]

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        self.listings.append(directory)
        return [
            ObjectInfo(name, len(data), self.modified[name])
            for name, data in self.objects.items()
            if name.rpartition("/")[0] == directory and name.rpartition("/")[2].startswith(prefix)
        ]

    def list_directories(self, directory: str) -> Sequence[str]:
        self.listings.append(directory)
        parents = set()
        for name in self.objects:
            while name := name.rpartition("/")[0]:
                parents.add(name)
        parents.discard(UNPUBLISHED)
        return sorted(p for p in parents if p.rpartition("/")[0] == directory)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(name, None)
            self.modified.pop(name, None)

    def copy(self) -> DictObjectStore:
        """A store with the same objects."""
        return replace(
            self,
            objects=dict(self.objects),
            modified=dict(self.modified),
            reads=[],
            listings=[],
        )


@dataclass
class InterruptedObjectStore:
    """`store` with interruptions: another process acts before or after the first writes of
    versions."""

    store: ObjectStore
    before: list[Callable[[], object]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.store.url

    def put(self, name: str, data: bytes) -> None:
        if name.startswith("versions/") and self.before:
            self.before.pop(0)()
        self.store.put(name, data)
        if name.startswith("versions/") and self.after:
            self.after.pop(0)()

    def get(self, name: str) -> bytes:
        return self.store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.store.get_range(name, start, length)

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return self.store.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        return self.store.list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        self.store.delete(names)


class Stopped(Exception):
    """Marks the place where the process was killed."""


# A writer writes an object first under a name of its own, and then links the object to the final
# name.
StopMode = Literal[
    "before the write", "half written", "before the link", "after the link", "after the write"
]
STOP_MODES: tuple[StopMode, ...] = get_args(StopMode)


@dataclass
class StoppingObjectStore:
    """`objects` until write number `stop_at`, counted from 1. Each deleted name counts as a
    write."""

    objects: DictObjectStore
    stop_at: int
    mode: StopMode
    writes: int = 0

    @property
    def url(self) -> str:
        return self.objects.url

    def put(self, name: str, data: bytes) -> None:
        if not self._counts():
            self.objects.put(name, data)
            return
        if self.mode in ("half written", "before the link", "after the link"):
            whole = self.mode != "half written"
            written = data if whole else data[: len(data) // 2]
            self.objects.put(f"{UNPUBLISHED}/{self.writes}", written)
        if self.mode in ("after the link", "after the write"):
            with suppress(ObjectExistsError):  # the process is killed anyway
                self.objects.put(name, data)
        raise Stopped(name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            stopping = self._counts()
            if not stopping or self.mode == "after the write":
                self.objects.delete([name])
            if stopping:
                raise Stopped(name)

    def _counts(self) -> bool:
        self.writes += 1
        return self.writes == self.stop_at

    def get(self, name: str) -> bytes:
        return self.objects.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.objects.get_range(name, start, length)

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return self.objects.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        return self.objects.list_directories(directory)


@dataclass
class FakeTime:
    """A clock whose seconds pass only in sleeps. `while_waiting` is called in each sleep."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)
    while_waiting: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.while_waiting()


@dataclass
class FlakyObjectStore:
    """`store` whose next calls raise `errors`, before or after the effect of the call. While
    `is_away()` is true, all calls fail before their effect."""

    store: ObjectStore
    errors: list[Exception] = field(default_factory=list)
    after_effect: bool = False
    calls: int = 0
    is_away: Callable[[], bool] = lambda: False

    @property
    def url(self) -> str:
        return self.store.url

    def fail(self, times: int, code: int = errno.EIO) -> None:
        """Let the next `times` calls fail."""
        self.errors = [OSError(code, "the network is down") for _ in range(times)]

    def _trip(self) -> None:
        self.calls += 1
        if self.is_away():
            raise OSError(errno.EIO, "the network is down")
        if self.errors and not self.after_effect:
            raise self.errors.pop(0)

    def put(self, name: str, data: bytes) -> None:
        self._trip()
        self.store.put(name, data)
        if self.errors and self.after_effect:
            raise self.errors.pop(0)

    def get(self, name: str) -> bytes:
        self._trip()
        return self.store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._trip()
        return self.store.get_range(name, start, length)

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        self._trip()
        return self.store.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        self._trip()
        return self.store.list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        self._trip()
        self.store.delete(names)


@dataclass
class RefusingObjectStore:
    """`store` whose calls may fail. `refusal` gets an operation ("put", "get", "list" or "delete")
    and a name, and returns the error to raise, or None for no error."""

    store: ObjectStore
    refusal: Callable[[str, str], Exception | None]

    @property
    def url(self) -> str:
        return self.store.url

    def _check(self, operation: str, *names: str) -> None:
        for name in names:
            error = self.refusal(operation, name)
            if error is not None:
                raise error

    def put(self, name: str, data: bytes) -> None:
        self._check("put", name)
        self.store.put(name, data)

    def get(self, name: str) -> bytes:
        self._check("get", name)
        return self.store.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._check("get", name)
        return self.store.get_range(name, start, length)

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        self._check("list", directory)
        return self.store.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        self._check("list", directory)
        return self.store.list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        self._check("delete", *names)
        self.store.delete(names)


@dataclass
class MisbehavingObjectStore:
    """`store` whose calls are sometimes slow, fail before or after their effect, or return a part
    of an object. `chance` decides. A put fails if `refused` is in the object's name. All calls fail
    once `calls_left` has reached 0. Threads may share the store.

    `held` is the path of a file. While the file exists, puts of objects with `holding` in their
    name wait, by default puts of snapshots. The names of waiting objects are written into the file.
    """

    store: ObjectStore
    chance: random.Random
    slow: float = 0.0
    failing: float = 0.0
    truncating: float = 0.0
    refused: str | None = None
    calls_left: int | None = None
    held: str | None = None
    holding: str = ".snapshot.arrow"

    @property
    def url(self) -> str:
        return self.store.url

    def behave(self) -> None:
        """Stop all misbehaviour from now on, except `held`."""
        self.slow = self.failing = self.truncating = 0.0
        self.refused = self.calls_left = None

    def _before(self) -> None:
        if self.chance.random() < self.slow:
            time.sleep(self.chance.uniform(0, 0.003))
        if self.calls_left is not None:
            self.calls_left = max(0, self.calls_left - 1)
            if not self.calls_left:
                raise OSError(errno.EIO, "the network is down")
        self._fail_sometimes()

    def _fail_sometimes(self) -> None:
        if self.chance.random() < self.failing:
            raise OSError(errno.EIO, "the connection was reset")

    def put(self, name: str, data: bytes) -> None:
        self._before()
        if self.refused is not None and self.refused in name:
            raise OSError(errno.EDQUOT, "the quota is used up")
        if self.held is not None and self.holding in name:
            _wait(Path(self.held), name)
        self.store.put(name, data)
        self._fail_sometimes()

    def get(self, name: str) -> bytes:
        self._before()
        return self._truncated(self.store.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._before()
        return self._truncated(self.store.get_range(name, start, length))

    def _truncated(self, data: bytes) -> bytes:
        if data and self.chance.random() < self.truncating:
            return data[: self.chance.randrange(len(data))]
        return data

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        self._before()
        return self.store.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        self._before()
        return self.store.list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        self._before()
        self.store.delete(names)
        self._fail_sometimes()


def _wait(held: Path, name: str) -> None:
    with suppress(FileNotFoundError), held.open("r+") as waiting:
        waiting.seek(0, os.SEEK_END)
        waiting.write(f"{name}\n")
    while held.exists():
        time.sleep(0.01)


@dataclass
class InterceptedObjectStore:
    """`objects` behind two functions. `putting` gets a name and the call that puts the object.
    `getting` gets a name and the read bytes, and returns the bytes for the caller."""

    objects: DictObjectStore
    putting: Callable[[str, Callable[[], None]], None] = lambda _, put: put()
    getting: Callable[[str, bytes], bytes] = lambda _, data: data

    @property
    def url(self) -> str:
        return self.objects.url

    def put(self, name: str, data: bytes) -> None:
        self.putting(name, lambda: self.objects.put(name, data))

    def get(self, name: str) -> bytes:
        return self.getting(name, self.objects.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.getting(name, self.objects.get_range(name, start, length))

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return self.objects.list(directory, prefix)

    def list_directories(self, directory: str) -> Sequence[str]:
        return self.objects.list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        self.objects.delete(names)
