"""The totals in Pathway: a reduction by key, in Rust. Arguments: input folder, output folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pathway as pw
from figures import Meter


class Row(pw.Schema):
    key: str
    value: int


def main() -> None:
    meter, totals = Meter(), dict[str, tuple[int, int]]()

    def note(key: Any, row: Any, time: int, is_addition: bool) -> None:
        if is_addition:
            totals[row["key"]] = row["count"], row["total"]

    rows = pw.io.csv.read(sys.argv[1], schema=Row, mode="static")
    reduced = rows.groupby(rows.key).reduce(
        rows.key, count=pw.reducers.count(), total=pw.reducers.sum(rows.value)
    )
    pw.io.subscribe(reduced, on_change=note)
    meter.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    meter.stop(Path(sys.argv[2]), totals)


main()
