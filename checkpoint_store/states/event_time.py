"""How far in event time the writers of a state are. Pure.

A writer's watermark is the greatest event time of the rows it has written, less the delay that rows
may have. The watermark of the state is the least of its writers' watermarks, and never goes back: a
row before it is late, as it is for Spark. A writer that never wrote a row holds nobody back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WriterWatermarks:
    """The watermarks of `parallelism` writers, by subtask, and that of all together, in ms since
    1970; None if no writer has one."""

    parallelism: int = 0
    by_subtask: Mapping[int, int] = field(default_factory=dict)
    least_ms: int | None = None

    def advanced(self, parallelism: int, reported: Mapping[int, int]) -> WriterWatermarks:
        """The watermarks after `parallelism` writers have written; `reported` has the new ones by
        subtask.

        If the number of writers has changed, they are other writers: each has seen what all before
        it had, and begins at the least of their watermarks.
        """
        by_subtask = dict(self.by_subtask) if parallelism == self.parallelism else {}
        floor = [] if self.least_ms is None else [self.least_ms]
        for subtask, watermark_ms in reported.items():
            before = [by_subtask[subtask]] if subtask in by_subtask else floor
            by_subtask[subtask] = max([watermark_ms, *before])
        least = [min(by_subtask.values())] if by_subtask else []
        return WriterWatermarks(parallelism, by_subtask, max([*least, *floor], default=None))
