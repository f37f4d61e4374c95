"""Objects of a store damaged on purpose, and put right again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from checkpoint_store.errors import CheckpointStoreError
from tests.support.fake_object_store import DictObjectStore

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
