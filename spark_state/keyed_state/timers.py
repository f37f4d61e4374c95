"""The timers of keys: times at which a processor wants to be called.

A timer is state like any other: it is in changelogs and snapshots, and an epoch that is rolled back
registers and fires none.
"""

from __future__ import annotations

from spark_state.keyed_state.keyed_element_table import KeyedElementTable


class Timers:
    """The timers of the current key, in milliseconds since 1970; one a time."""

    def __init__(self, table: KeyedElementTable[int, tuple[()]]) -> None:
        self._table = table

    def register(self, expiry_ms: int) -> None:
        """Register a timer. One that is there already stays the one that it is."""
        if self._table.get(expiry_ms) is None:
            self._table.put(expiry_ms, ())

    def delete(self, expiry_ms: int) -> None:
        """Delete a timer, if it is there."""
        self._table.remove(expiry_ms)

    def list(self) -> list[int]:
        """The timers, the earliest first."""
        return [expiry_ms for expiry_ms, _ in self._table.elements()]
