"""Cost of the first epoch after a restore, in runs of one epoch: parts against whole snapshots.

    python tests/benchmarks/short_runs.py [--keys 200000] [--changed 0.05] [--runs 60] [--out FILE]

Two stores of one subtask get the same epochs, in turn. Each epoch runs in a host of its own that
restores the state, as in scheduled runs. In one store the first epoch names a part of a snapshot
when a part is due. In the other store the first epoch names the whole snapshot, as without parts.
The benchmark measures the seconds of each epoch with its restore, and the rows written in
snapshots. It prints medians, the longest epochs, and ratios.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from spark_state.checkpointing import snapshot_policy
from spark_state.subtasks.maintenance import Maintenance
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.support.operators.subtasks import Host, operator

PARTS, WHOLE = "parts", "whole"


@dataclass(slots=True)
class Measured:
    """Seconds of each epoch, and rows of the snapshots that epochs named."""

    seconds: list[float] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)


def run_epoch(
    folder: Path, epoch: int, rows: list[tuple[str, int]], few_entries: int, measured: Measured
) -> None:
    """Do one run of one epoch."""
    with (
        mock.patch.object(snapshot_policy, "FEW_ENTRIES", few_entries),
        Maintenance() as maintenance,
    ):
        host = Host(operator(folder, max_parallelism=128), run_id=f"run-{epoch}").open(maintenance)
        start = time.perf_counter()
        host.epoch(epoch, rows)
        measured.seconds.append(time.perf_counter() - start)
        measured.snapshots += [
            handle.rows
            for handle in host.handles
            if handle.kind == "snapshot" and handle.epoch == epoch
        ]


def main() -> None:
    sizes = {"keys": 200_000, "changed": 0.05, "runs": 60}
    given = parser_of(__doc__, "short_runs", **sizes).parse_args()
    keys = [f"key {number}" for number in range(given.keys)]
    chance = random.Random(7)
    cases = {PARTS: Measured(), WHOLE: Measured()}
    few_entries = {PARTS: snapshot_policy.FEW_ENTRIES, WHOLE: given.keys}
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(given.runs):
            drawn = keys if epoch == 0 else chance.sample(keys, int(given.keys * given.changed))
            for case, measured in cases.items():
                rows = [(key, 1) for key in drawn]
                run_epoch(Path(folder) / case, epoch, rows, few_entries[case], measured)
    for case, measured in cases.items():
        median = statistics.median(measured.seconds[1:])
        print(
            f"{case}: median {median:.2f} s, longest {max(measured.seconds[1:]):.2f} s, "
            f"{len(measured.snapshots)} snapshots of {sum(measured.snapshots)} rows, "
            f"at most {max(measured.snapshots, default=0)}"
        )
    parts, whole = (max(cases[case].snapshots, default=0) for case in (PARTS, WHOLE))
    print(f"rows that an epoch waits for, parts : whole: {parts / max(whole, 1):.2f}")
    write_results(given.out, {case: [m.seconds, m.snapshots] for case, m in cases.items()})


if __name__ == "__main__":
    main()
