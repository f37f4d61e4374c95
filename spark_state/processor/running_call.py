"""The processor's method that a thread runs now, for the threads that wait for the result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RunningCall:
    """The processor's method that runs now. `method`: None between methods. `has_key`: True if the
    call is for the backend's current key. A step sets both values once for all keys, so a call for
    a single key costs nothing more."""

    method: str | None = None
    has_key: bool = False

    def begin(self, method: str, *, has_key: bool = False) -> None:
        """Note that calls of `method` begin."""
        self.method, self.has_key = method, has_key

    def end(self) -> None:
        """Note that the calls have ended."""
        self.method, self.has_key = None, False
