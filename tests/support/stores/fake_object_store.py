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
from typing import Any, Literal, get_args

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_info import UNPUBLISHED, ObjectInfo


@dataclass
class DictObjectStore:
    """Objects in a dict, created at the time `now`. Records reads and listings.

    Several threads may use a store: a listing reads a copy of the dict, and copying is one step.
    """

    url: str = "dict://store"
    now: float | None = 0.0
    objects: dict[str, bytes] = field(default_factory=dict)
    modified: dict[str, float | None] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    listings: list[str] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        if name in self.objects:
            raise ObjectExistsError(self.url, name)
        self.modified[name] = self.now
        self.objects[name] = data

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
            ObjectInfo(name, len(data), self.modified.get(name))
            for name, data in dict(self.objects).items()
            if name.rpartition("/")[0] == directory and name.rpartition("/")[2].startswith(prefix)
        ]

    def list_directories(self, directory: str) -> Sequence[str]:
        self.listings.append(directory)
        parents = set()
        for name in dict(self.objects):
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
class ObjectStoreInFront:
    """`store` behind what a subclass does before and after each call: "put", "get", "list" or
    "delete"."""

    store: Any

    @property
    def url(self) -> str:
        url: str = self.store.url
        return url

    def _before(self, call: str, *names: str) -> None:
        """Called before the effect."""

    def _after(self, call: str, *names: str) -> None:
        """Called after the effect of a put or a delete."""

    def _answered(self, name: str, data: bytes) -> bytes:
        """The bytes that the caller gets of an object."""
        return data

    def put(self, name: str, data: bytes) -> None:
        self._before("put", name)
        self.store.put(name, data)
        self._after("put", name)

    def get(self, name: str) -> bytes:
        self._before("get", name)
        return self._answered(name, self.store.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._before("get", name)
        return self._answered(name, self.store.get_range(name, start, length))

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        self._before("list", directory)
        listed: Sequence[ObjectInfo] = self.store.list(directory, prefix)
        return listed

    def list_directories(self, directory: str) -> Sequence[str]:
        self._before("list", directory)
        listed: Sequence[str] = self.store.list_directories(directory)
        return listed

    def delete(self, names: Sequence[str]) -> None:
        self._before("delete", *names)
        self.store.delete(names)
        self._after("delete", *names)


@dataclass
class InterruptedObjectStore(ObjectStoreInFront):
    """Objects with interruptions: another process acts before or after the first writes of
    versions."""

    before: list[Callable[[], object]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)

    def _before(self, call: str, *names: str) -> None:
        self._interrupt(self.before, call, names)

    def _after(self, call: str, *names: str) -> None:
        self._interrupt(self.after, call, names)

    def _interrupt(self, by: list[Callable[[], object]], call: str, names: Sequence[str]) -> None:
        if by and call == "put" and names[0].startswith("versions/"):
            by.pop(0)()


class Stopped(Exception):
    """Marks the place where the process was killed."""


# A writer writes an object first under a name of its own, and then links the object to the final
# name.
StopMode = Literal[
    "before the write", "half written", "before the link", "after the link", "after the write"
]
STOP_MODES: tuple[StopMode, ...] = get_args(StopMode)


@dataclass
class StoppingObjectStore(ObjectStoreInFront):
    """`store` until write number `stop_at`, counted from 1. Each deleted name counts as a
    write."""

    stop_at: int
    mode: StopMode
    writes: int = 0

    def put(self, name: str, data: bytes) -> None:
        if not self._counts():
            self.store.put(name, data)
            return
        if self.mode in ("half written", "before the link", "after the link"):
            whole = self.mode != "half written"
            written = data if whole else data[: len(data) // 2]
            self.store.put(f"{UNPUBLISHED}/{self.writes}", written)
        if self.mode in ("after the link", "after the write"):
            with suppress(ObjectExistsError):  # the process is killed anyway
                self.store.put(name, data)
        raise Stopped(name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            stopping = self._counts()
            if not stopping or self.mode == "after the write":
                self.store.delete([name])
            if stopping:
                raise Stopped(name)

    def _counts(self) -> bool:
        self.writes += 1
        return self.writes == self.stop_at


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
class FlakyObjectStore(ObjectStoreInFront):
    """Objects whose next calls raise `errors`, before their effect, or puts after their effect.
    While `is_away()` is true, all calls fail before their effect."""

    errors: list[Exception] = field(default_factory=list)
    after_effect: bool = False
    calls: int = 0
    is_away: Callable[[], bool] = lambda: False

    def fail(self, times: int, code: int = errno.EIO) -> None:
        """Let the next `times` calls fail."""
        self.errors = [OSError(code, "the network is down") for _ in range(times)]

    def _before(self, call: str, *names: str) -> None:
        self.calls += 1
        if self.is_away():
            raise OSError(errno.EIO, "the network is down")
        if self.errors and not self.after_effect:
            raise self.errors.pop(0)

    def _after(self, call: str, *names: str) -> None:
        if call == "put" and self.errors and self.after_effect:
            raise self.errors.pop(0)


@dataclass
class RefusingObjectStore(ObjectStoreInFront):
    """Objects whose calls may fail. `refusal` gets a call and a name, and returns the error to
    raise, or None for no error."""

    refusal: Callable[[str, str], Exception | None]

    def _before(self, call: str, *names: str) -> None:
        for name in names:
            error = self.refusal(call, name)
            if error is not None:
                raise error


@dataclass
class MisbehavingObjectStore(ObjectStoreInFront):
    """Objects whose calls are sometimes slow, fail before or after their effect, or return a part
    of an object. `chance` decides. A put fails if `refused` is in the object's name. All calls fail
    once `calls_left` has reached 0. Threads may share the store.

    `held` is the path of a file. While the file exists, puts of objects with `holding` in their
    name wait, by default puts of snapshots. The names of waiting objects are written into the file.
    """

    chance: random.Random
    slow: float = 0.0
    failing: float = 0.0
    truncating: float = 0.0
    refused: str | None = None
    calls_left: int | None = None
    held: str | None = None
    holding: str = ".snapshot.arrow"

    def behave(self) -> None:
        """Stop all misbehaviour from now on, except `held`."""
        self.slow = self.failing = self.truncating = 0.0
        self.refused = self.calls_left = None

    def _before(self, call: str, *names: str) -> None:
        if self.chance.random() < self.slow:
            time.sleep(self.chance.uniform(0, 0.003))
        if self.calls_left is not None:
            self.calls_left = max(0, self.calls_left - 1)
            if not self.calls_left:
                raise OSError(errno.EIO, "the network is down")
        self._after(call)
        if call == "put" and self.refused is not None and self.refused in names[0]:
            raise OSError(errno.EDQUOT, "the quota is used up")
        if call == "put" and self.held is not None and self.holding in names[0]:
            _wait(Path(self.held), names[0])

    def _after(self, call: str, *names: str) -> None:
        if self.chance.random() < self.failing:
            raise OSError(errno.EIO, "the connection was reset")

    def _answered(self, name: str, data: bytes) -> bytes:
        if data and self.chance.random() < self.truncating:
            return data[: self.chance.randrange(len(data))]
        return data


def _wait(held: Path, name: str) -> None:
    with suppress(FileNotFoundError), held.open("r+") as waiting:
        waiting.seek(0, os.SEEK_END)
        waiting.write(f"{name}\n")
    while held.exists():
        time.sleep(0.01)


@dataclass
class InterceptedObjectStore(ObjectStoreInFront):
    """Objects behind two functions. `putting` gets a name and the call that puts the object.
    `getting` gets a name and the read bytes, and returns the bytes for the caller."""

    putting: Callable[[str, Callable[[], None]], None] = lambda _, put: put()
    getting: Callable[[str, bytes], bytes] = lambda _, data: data

    def put(self, name: str, data: bytes) -> None:
        self.putting(name, lambda: self.store.put(name, data))

    def _answered(self, name: str, data: bytes) -> bytes:
        return self.getting(name, data)
