"""Random rows for processors in queries: batches of rows at the times of a watermark."""

from __future__ import annotations

import random
from dataclasses import dataclass

Row = tuple[str | None, int]

KEYS = [None, "", "ä", *(f"key{number}" for number in range(37))]
DELAY_MS = 5


@dataclass(frozen=True)
class Batch:
    """The rows of a batch. Spark drops the rows in `late`. `watermark_ms`: the batch's
    watermark."""

    watermark_ms: int
    rows: list[Row]
    late: list[Row]


@dataclass
class Timeline:
    """Random batches of rows (key, value), the same for all engines.

    A row's event time is its value divided by `lines`. The watermark is DELAY_MS behind the latest
    event time. Each row is either after the watermark of its batch, or not after the watermark of
    the batch before. A row between both watermarks would be late only if the batch before had no
    rows, and engines differ in when they run such empty batches.
    """

    chance: random.Random
    lines: int
    watermark_ms: int = 0
    before_ms: int = 0
    latest_ms: int = 0

    def batch(self) -> Batch:
        """The next batch."""
        keys = self.chance.sample(KEYS, self.chance.randint(len(KEYS) // 2, len(KEYS)))
        rows = [self._row(key, self._later()) for key in keys for _ in range(self._some())]
        late = [
            self._row(key, self.chance.randint(0, self.before_ms))
            for key in self.chance.sample(KEYS, len(KEYS) // 4)
        ]
        batch = Batch(self.watermark_ms, rows, late if self.before_ms else [])
        self.latest_ms = max(self.latest_ms, *(value // self.lines for _, value in rows))
        self.before_ms = self.watermark_ms
        self.watermark_ms = max(self.watermark_ms, self.latest_ms - DELAY_MS)
        return batch

    def _some(self) -> int:
        return self.chance.randint(1, 3)

    def _later(self) -> int:
        return self.watermark_ms + self.chance.randint(1, 20)

    def _row(self, key: str | None, at_ms: int) -> Row:
        return key, at_ms * self.lines + self.chance.randrange(self.lines)
