"""Files that the processes of an engine write for the benchmark. Imports nothing of an engine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

Totals = dict[str, tuple[int, int]]
"""Count and sum of each key."""


class Meter:
    """The seconds and CPU seconds of this process from `start` to `stop`."""

    def __init__(self) -> None:
        self.began = 0.0
        self._cpu = 0.0

    def start(self) -> None:
        """Begin to measure; later calls change nothing."""
        if not self.began:
            self.began, self._cpu = time.time(), time.process_time()

    def stop(self, folder: Path, totals: Totals) -> None:
        """Write the figures and the totals of this process."""
        figures = {
            "began": self.began,
            "ended": time.time(),
            "cpu_s": time.process_time() - self._cpu,
            "totals": totals,
        }
        (folder / f"{os.getpid()}.json").write_text(json.dumps(figures))
