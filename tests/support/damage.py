"""Objects of a store damaged on purpose, and put right again, and what is answered meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa

from checkpoint_store.errors import CheckpointStoreError
from tests.support.fake_object_store import DictObjectStore

Answer = Any
How = Literal["flip", "truncate", "empty", "delete"]
HOWS: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to one object; `place`: where in it, as a fraction of its length."""

    name: str
    how: How
    place: float = 0.5

    def of(self, data: bytes) -> bytes | None:
        """The damaged bytes; None if the object is gone."""
        at = min(int(len(data) * self.place), len(data) - 1)
        match self.how:
            case "flip":
                return data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]
            case "truncate":
                return data[:at]
            case "empty":
                return b""
            case "delete":
                return None


@dataclass
class DamagedStore:
    """A copy of `intact` with damages."""

    intact: DictObjectStore
    damages: tuple[Damage, ...]
    objects: DictObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.objects = self.intact.copy()
        for damage in self.damages:
            data = damage.of(self.intact.objects[damage.name])
            if data is None:
                self.objects.delete([damage.name])
            else:
                self.objects.objects[damage.name] = data

    def restored_from_a_backup(self) -> DictObjectStore:
        """What is there now, with what was damaged as it was."""
        found = self.objects.copy()
        for damage in self.damages:
            found.objects[damage.name] = self.intact.objects[damage.name]
            found.modified[damage.name] = self.intact.modified[damage.name]
        return found


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that is to come instead of an answer, and words that it has."""

    error: type[CheckpointStoreError]
    words: tuple[str, ...] = ()

    def fits(self, found: Any) -> bool:
        """Whether an answer is that error."""
        return type(found) is self.error and all(word in str(found) for word in self.words)


Question = Callable[[DamagedStore], Answer]


def answer_or_error(question: Question, store: DamagedStore) -> Answer:
    """The answer, or the CheckpointStoreError that comes instead."""
    try:
        return question(store)
    except CheckpointStoreError as error:
        return error


def read_each(read: Callable[[int], Answer], versions: Iterable[int]) -> dict[int, Answer]:
    """What is read of each version, or the name of the error that comes instead."""
    found: dict[int, Answer] = {}
    for version in versions:
        try:
            found[version] = read(version)
        except CheckpointStoreError as error:
            found[version] = type(error).__name__
    return found


def sorted_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows, in an order that does not depend on that of the table."""
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def described(names: Iterable[str]) -> dict[str, str]:
    """Objects by what they are: their names without what is drawn at random, and without zeros."""
    found: dict[str, str] = {}
    for name in sorted(names):
        what = re.sub(r"-[0-9a-f]{12}(-\d+)?", "", re.sub(r"\.(json|arrow)$", "", name))
        what = re.sub(r"\b0+(?=\d)", "", what)
        while what in found:
            what += "'"
        found[what] = name
    return found
