"""The timers of keys: times at which a processor wants to be called.

A timer is state: changelogs and snapshots contain timers, and the rollback of an epoch undoes the
epoch's changes of timers.
"""

from __future__ import annotations

from spark_state.keyed_state.keyed_tables import KeyedElementTable


class Timers:
    """The timers of the current key, in milliseconds since 1970; at most one timer per time."""

    def __init__(self, table: KeyedElementTable[int, tuple[()]]) -> None:
        self._table = table

    def register(self, expiry_ms: int) -> None:
        """Register a timer. A second registration of the same time changes nothing."""
        if self._table.get(expiry_ms) is None:
            self._table.put(expiry_ms, ())

    def delete(self, expiry_ms: int) -> None:
        """Delete a timer, if present."""
        self._table.remove(expiry_ms)

    def list(self) -> list[int]:
        """Return the timers, the earliest first."""
        return [expiry_ms for expiry_ms, _ in self._table.elements()]
