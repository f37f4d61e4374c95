"""A run of queries on an engine, in a process of its own. Imports no engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """A run. `kind`: `expected`, `checked` or `timed`. `events`: the folder with the events.
    `folder` belongs to the run. `interval_ms`: time between two checkpoints of Flink."""

    kind: str
    engine: str
    queries: list[str]
    events: str
    folder: str
    floor_jar: str
    interval_ms: int

    @property
    def output(self) -> Path:
        """The folder of the answers, with a folder for each query."""
        return Path(self.folder) / "output"

    @property
    def is_on_flink(self) -> bool:
        return "flink" in self.engine

    @property
    def is_on_pyflink(self) -> bool:
        return self.engine.startswith("pyflink")
