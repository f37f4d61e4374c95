"""Rows per second on one core: counts by key, in whole Arrow batches and row by row.

    python tests/benchmarks/arrow_batches.py [--rows 200000] [--keys 20000] [--epochs 10]

Two subtasks run in turn in this process, each in a state host's session over a folder. A session
sorts the rows by key, runs the processor, and writes changelog and barrier. CountRowsInArrow and
CountRows get the same tables. The benchmark measures the CPU seconds of each epoch after the first,
without the threads that write snapshots, and prints medians and their ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_state.host.garbage import FrozenGarbage
from spark_state.key_group_hash import key_groups_of
from spark_state.processor.blocks import BlockSize
from spark_state.processor.processor_api import ROW_API, ProcessorApi, in_arrow
from spark_state.subtasks.maintenance import Maintenance
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.benchmarks.count_rows import CountRows
from tests.benchmarks.python_state_plans import CountRowsInArrow
from tests.support.operators.subtasks import Host, operator

KEY_GROUPS = 128
OUTPUT = pa.schema([("key", pa.string()), ("count", pa.int64())])


def tables(rows: int, keys: int) -> Iterator[pa.Table]:
    """Yield tables of random keys, with their key groups."""
    chance = np.random.default_rng(1)
    names = [f"key{number:07d}" for number in range(keys)]
    groups = key_groups_of([pa.array(names)], ["string"], KEY_GROUPS)
    while True:
        chosen = chance.integers(0, keys, rows)
        columns: list[Any] = [pa.array(names).take(pa.array(chosen)), pa.array(np.ones(rows))]
        columns.append(pa.array(groups[chosen]))
        yield pa.table(columns, names=["key", "value", "_cowstate_key_group"])


def host_of(folder: Path, processor: Any, api: ProcessorApi, maintenance: Maintenance) -> Host:
    """The host of a subtask that runs `processor`."""
    spec = operator(folder, processor, api=api, max_parallelism=KEY_GROUPS)
    of_processor = replace(spec.processor, output_schema=OUTPUT)
    return Host(replace(spec, processor=of_processor)).open(maintenance)


def epoch_seconds(host: Host, epoch: int, table: pa.Table) -> float:
    """CPU seconds of an epoch."""
    request = host.request(epoch, 0)
    start = time.thread_time()
    with host.session.run(host.session.accept(request, lambda: None), table) as durable:
        pass
    seconds = time.thread_time() - start
    durable.output.close()
    return seconds


def main() -> None:
    sizes = {"rows": 200_000, "keys": 20_000, "epochs": 10}
    options = parser_of(__doc__, "arrow_batches", **sizes).parse_args()
    garbage = FrozenGarbage()
    garbage.begin()
    seconds: dict[str, list[float]] = {"Arrow batches": [], "rows": []}
    with tempfile.TemporaryDirectory() as folder, Maintenance() as maintenance:
        size = BlockSize(rows=10_000, bytes=64 << 20)
        hosts = {
            "Arrow batches": host_of(
                Path(folder) / "arrow", CountRowsInArrow(), in_arrow(size), maintenance
            ),
            "rows": host_of(Path(folder) / "rows", CountRows(), ROW_API, maintenance),
        }
        made = tables(options.rows, options.keys)
        for epoch in range(options.epochs + 1):
            table = next(made)
            for name, host in hosts.items():
                taken = epoch_seconds(host, epoch, table)
                if epoch:
                    seconds[name].append(taken)
            garbage.freeze_if_due()
    median = {name: statistics.median(of_name) for name, of_name in seconds.items()}
    for name, of_name in median.items():
        print(f"{name:14} {options.rows / of_name:12,.0f} rows/s, {of_name:.3f} CPU s an epoch")
    print(f"CPU of Arrow batches to rows: {median['Arrow batches'] / median['rows']:.3f}")
    write_results(options.out, median)


if __name__ == "__main__":
    main()
