"""The method of a processor that a thread is in, told to threads that wait for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunningCall:
    """`method`: None while none runs; `has_key`: whether it is called for the backend's current
    key. Noted once for all keys of a step: a call of a key costs nothing more."""

    method: str | None = None
    has_key: bool = False

    def begin(self, method: str, *, has_key: bool = False) -> None:
        """Note that the processor is called from now on."""
        self.method, self.has_key = method, has_key

    def end(self) -> None:
        """Note that the processor is not called any more."""
        self.method, self.has_key = None, False
