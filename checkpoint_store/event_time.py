"""How far in event time the writers of a state are. Pure.

A writer's watermark is the greatest event time of the rows it has written, less the delay that rows
may have. It never goes back. That of the state is the least of its writers': rows before it are
not expected from any of them. A writer that never wrote a row is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WriterWatermarks:
    """The watermarks of `parallelism` writers, by subtask, in ms since 1970."""

    parallelism: int = 0
    by_subtask: Mapping[int, int] = field(default_factory=dict)

    @property
    def least_ms(self) -> int | None:
        """The watermark of all together; None if no writer has one."""
        return min(self.by_subtask.values(), default=None)

    def advanced(self, parallelism: int, reported: Mapping[int, int]) -> WriterWatermarks:
        """After `parallelism` writers have written, those in `reported` up to there.

        If their number is another than before they are other writers: each of them has seen what
        all had, and begins at the least of these.
        """
        if parallelism == self.parallelism:
            known, floor_ms = dict(self.by_subtask), None
        else:
            known, floor_ms = {}, self.least_ms
        for subtask, watermark_ms in reported.items():
            before = known.get(subtask, floor_ms)
            known[subtask] = watermark_ms if before is None else max(before, watermark_ms)
        if not known and floor_ms is not None:
            known[0] = floor_ms
        return WriterWatermarks(parallelism, known)
