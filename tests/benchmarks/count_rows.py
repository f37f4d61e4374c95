"""The processor of most benchmarks. A state host imports this module, so it imports no more than a
processor of a user does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from tests.support.processors.processors import Processor


class CountRows(Processor):
    """Processor with one exists, get and update per key. Emits the count."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            count += 1
        self._count.update((count,))
        yield Row(key=key[0], count=count)
