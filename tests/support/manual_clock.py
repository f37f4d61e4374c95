"""A clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ManualClock:
    """A clock in seconds, which moves on by `step` at each look."""

    now: float = 0.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now
