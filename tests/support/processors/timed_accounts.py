"""Base class of the processors in the kill tests: one timer per key, and an account of the key."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.support.processors.processors import Processor


class KeepsAccount(Processor):
    """A processor with one timer per key, and a state that counts the key's events.

    `told_names`: the names of the counts, including "registered", "deleted", "fired" and "closed".
    `open_schema`: the schema of the rows that are open until the timer fires.
    """

    told_names: ClassVar[tuple[str, ...]]
    open_schema: ClassVar[str]

    def init(self, handle: Any) -> None:
        self._handle = handle
        told_schema = ", ".join(f"{name} bigint" for name in self.told_names)
        self._told = handle.getValueState("told", told_schema)
        self._open = handle.getListState("open", self.open_schema)
        self._ends = handle.getValueState("ends", "at_ms bigint")

    def told(self) -> dict[str, int]:
        counted = self._told.get() or (0,) * len(self.told_names)
        return dict(zip(self.told_names, counted, strict=True))

    def tell(self, told: dict[str, int]) -> None:
        self._told.update(tuple(told.values()))

    def set_timer(self, ends_ms: int, told: dict[str, int]) -> None:
        """Move the key's timer to a time, and count the change."""
        if self._ends.exists():
            self._handle.deleteTimer(self._ends.get()[0])
            told["deleted"] += 1
        self._handle.registerTimer(ends_ms)
        self._ends.update((ends_ms,))
        told["registered"] += 1

    def close_all(self) -> dict[str, int]:
        """Count the fired timer and the open rows, and clear the open rows. Returns the counts."""
        told = self.told()
        told["fired"] += 1
        told["closed"] += sum(1 for _ in self._open.get())
        self.tell(told)
        self._open.clear()
        self._ends.clear()
        return told
