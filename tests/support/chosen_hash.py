"""Keys whose hash the test chooses, so that it decides which entries share a chain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChosenHash:
    """Equal by name only; hashed as told."""

    name: int
    code: int

    def __hash__(self) -> int:
        return self.code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChosenHash) and self.name == other.name
