"""The progress of a state's writers in event time. Pure.

A writer's watermark is the greatest event time of the rows that the writer has written, less the
delay that rows may have. The watermark of the state is the least of the writers' watermarks, and
never goes back. A row before the watermark is late, as in Spark. A writer that has not written a
row yet has no watermark, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriterWatermarks:
    """The watermarks of `parallelism` writers, by subtask, and the least watermark, in ms since
    1970; None if no writer has a watermark."""

    parallelism: int
    by_subtask: Mapping[int, int]
    least_ms: int | None

    def advanced(self, parallelism: int, reported: Mapping[int, int]) -> WriterWatermarks:
        """The watermarks after `parallelism` writers have written. `reported`: new watermarks by
        subtask.

        If the number of writers has changed, all writers are new: each has seen the rows of all
        former writers, and begins at the least of the former watermarks.
        """
        by_subtask = dict(self.by_subtask) if parallelism == self.parallelism else {}
        floor = [] if self.least_ms is None else [self.least_ms]
        for subtask, watermark_ms in reported.items():
            before = [by_subtask[subtask]] if subtask in by_subtask else floor
            by_subtask[subtask] = max([watermark_ms, *before])
        least = [min(by_subtask.values())] if by_subtask else []
        return WriterWatermarks(parallelism, by_subtask, max([*least, *floor], default=None))


NO_WATERMARKS = WriterWatermarks(0, {}, None)
