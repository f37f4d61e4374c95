"""The parts about a checkpoint in the reports of commands, as text and as JSON, and the progress
bar."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from checkpoint_store.amounts import size_text
from spark_state.spark.provider.provider_class import short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, StatefulOperator
from spark_state.spark.stopped_query.checkpoint_change import Progress

_TENTHS = 10


@contextmanager
def shown_progress(doing: str, done: str, unit: str) -> Iterator[Progress]:
    """Show progress on standard error: tqdm's bar, or a line for each tenth without a terminal or
    tqdm. `doing`, `done`: the verb; `unit`: the unit of the count."""
    if importlib.util.find_spec("tqdm") is None or not sys.stderr.isatty():
        yield _lines(done, unit)
        return
    from tqdm import tqdm

    with tqdm(unit=unit, desc=doing, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def _lines(done: str, unit: str) -> Progress:
    shown = 0

    def show(count: int, total: int) -> None:
        nonlocal shown
        tenths = count * _TENTHS // total
        if tenths > shown:
            shown = tenths
            print(f"{done} {count} of {total} {unit}s", file=sys.stderr, flush=True)

    return show


def _usage(checkpoint: QueryCheckpoint, operator: StatefulOperator) -> tuple[int, int]:
    """The number of files of the operator's stores, and their bytes. After a move to an object
    store, files in the checkpoint no longer count."""
    below = f"state/{operator.number}/"
    in_checkpoint = {file.path: file.length for file in checkpoint.files}
    lengths = in_checkpoint if checkpoint.place is None else dict(checkpoint.stored)
    own = [length for path, length in lengths.items() if path.startswith(below)]
    return len(own), sum(own)


def checkpoint_as_json(checkpoint: QueryCheckpoint) -> dict[str, Any]:
    """The facts about a checkpoint, as JSON values."""
    operators = []
    for operator in checkpoint.operators:
        files, size = _usage(checkpoint, operator)
        operators.append(
            {
                "operator": operator.number,
                "name": operator.name,
                "stores": list(operator.stores),
                "partitions": operator.partitions,
                "files": files,
                "bytes": size,
            }
        )
    return {
        "checkpoint": checkpoint.url,
        "query": checkpoint.query_id,
        "provider": checkpoint.provider,
        "place": None if checkpoint.place is None else checkpoint.place.root,
        "last_planned_batch": checkpoint.planned,
        "last_committed_batch": checkpoint.committed,
        "version": checkpoint.version,
        "operators": operators,
    }


def checkpoint_as_lines(checkpoint: QueryCheckpoint) -> list[str]:
    """The facts about a checkpoint, as lines of text."""
    planned, committed = checkpoint.planned, checkpoint.committed
    done = "no batch is committed" if committed is None else f"batch {committed} is committed"
    lines = [
        f"Checkpoint  {checkpoint.url}",
        f"Query       {checkpoint.query_id}",
        f"Provider    {short_name(checkpoint.provider)}",
        *([] if checkpoint.place is None else [f"Store       {checkpoint.place.root}"]),
        f"Progress    batch {planned} is planned, {done}; the next batch starts from version "
        f"{checkpoint.version}",
    ]
    for operator in checkpoint.operators:
        files, size = _usage(checkpoint, operator)
        stores = ", ".join(operator.stores)
        lines.append(
            f"Operator {operator.number}  {operator.name}: {operator.partitions} partitions of "
            f"{stores}; {files} files, {size_text(size)}"
        )
    return lines


def when_to_apply(checkpoint: QueryCheckpoint) -> list[str]:
    """The last lines of the report of a dry run."""
    if checkpoint.planned != checkpoint.committed:
        return [
            f"Batch {checkpoint.planned} is planned and not committed, so the query may be running "
            "it: --apply would refuse, unless --force says that the query is stopped.",
            "Nothing was changed. Stop the query, then run this command with --apply --force.",
        ]
    return [
        "Nothing was changed. Stop the query, then run this command with --apply. It plans batch "
        f"{checkpoint.planned + 1} first, without rows, and edits this entry of offsets/, too: "
        "Spark refuses the batch to a query that still runs. --force, for a query that is "
        "certainly stopped, leaves this out."
    ]
