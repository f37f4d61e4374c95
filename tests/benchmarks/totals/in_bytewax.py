"""The totals in Bytewax: a stateful map, with a row out for each row in.

Bytewax imports this module by its name. TOTALS_INPUT and TOTALS_OUTPUT name the folders.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from figures import Meter, Totals

INPUT, OUTPUT = Path(os.environ["TOTALS_INPUT"]), Path(os.environ["TOTALS_OUTPUT"])
METER = Meter()


class LastTotals(StatelessSinkPartition[Any]):
    """Sink that keeps the last totals of each key."""

    def __init__(self) -> None:
        self._totals: Totals = {}

    def write_batch(self, items: list[Any]) -> None:
        self._totals.update(items)

    def close(self) -> None:
        METER.stop(OUTPUT, self._totals)


class TotalsSink(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> LastTotals:
        return LastTotals()


def parse(line: str) -> tuple[str, int]:
    METER.start()
    key, value = line.split(",")
    return key, int(value)


def add(totals: tuple[int, int] | None, value: int) -> tuple[tuple[int, int], tuple[int, int]]:
    count, total = totals or (0, 0)
    new = count + 1, total + value
    return new, new


flow = Dataflow("totals")
lines = op.input("lines", flow, DirSource(INPUT, "*.csv"))
rows = op.map("parse", op.filter("header", lines, lambda line: line != "key,value"), parse)
op.output("out", op.stateful_map("totals", rows, add), TotalsSink())
