"""The part about a checkpoint in the reports of commands, as text and as JSON."""

from __future__ import annotations

from typing import Any

from checkpoint_store.amounts import size_text
from spark_state.spark.provider.provider_class import short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, StatefulOperator


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
