"""The reports of commands that change the checkpoint of a stopped query, as text and as JSON. There
are reports of a plan, of an applied change, and of a reverted change. Each report has a table of
values before and after the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoint_store.amounts import size_text
from spark_state.spark.provider.provider_class import short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, StatefulOperator
from spark_state.spark.stopped_query.change_record import Changed, ChangeKind
from spark_state.spark.stopped_query.checkpoint_change import (
    AppliedChange,
    PlannedChange,
    RevertedChange,
    left_files,
)

_INDENT = 12


def plan_as_json(planned: PlannedChange) -> dict[str, Any]:
    """The report of a dry run."""
    return {
        **_checkpoint_as_json(planned.checkpoint),
        **planned.facts,
        "changed": _changed_as_json(planned.changed),
        "applied": False,
    }


def plan_as_text(kind: ChangeKind, planned: PlannedChange) -> str:
    """The report of a dry run."""
    return "\n".join(
        [
            *_checkpoint_as_lines(planned.checkpoint),
            *planned.found,
            "",
            *_table(planned.changed, "now", "with --apply"),
            "",
            f"With --apply, {kind.command} would",
            *(f"  - {step}" for step in planned.steps),
            "",
            *_when_to_apply(planned.checkpoint),
        ]
    )


def applied_as_json(applied: AppliedChange) -> dict[str, Any]:
    """The report of an applied change."""
    return {
        **plan_as_json(applied.planned),
        "changed": _changed_as_json(applied.changed),
        "applied": True,
        "backup": applied.folder,
        "rows": applied.written.rows,
        "created": list(applied.written.record.created),
    }


def applied_as_text(kind: ChangeKind, applied: AppliedChange) -> str:
    """The report of an applied change."""
    checkpoint, planned = applied.planned.checkpoint, applied.planned
    rows = ", ".join(f"{count:,} of {name}" for name, count in applied.written.rows.items())
    return "\n".join(
        [
            f"Checkpoint  {checkpoint.url}",
            f"Query       {checkpoint.query_id}",
            "",
            *_table(applied.changed, "before", "now"),
            "",
            *([f"Rows        {rows}; read back and compared"] if rows else []),
            f"Backup      {checkpoint.url}/{applied.folder}",
            "",
            *planned.start,
            f"Until the query has run, cowstate {kind.command} --revert {checkpoint.url} undoes "
            "this.",
        ]
    )


def reverted_as_json(reverted: RevertedChange) -> dict[str, Any]:
    """The report of a reverted change."""
    record = reverted.record
    return {
        "checkpoint": reverted.url,
        "reverted": reverted.folder,
        "changed": _changed_as_json(_changed_back(reverted)),
        "restored": [*record.saved, *record.moved] if record else [],
        "deleted": list(record.created) if record else [],
        "left": reverted.left,
    }


def reverted_as_text(kind: ChangeKind, reverted: RevertedChange) -> str:
    """The report of a reverted change."""
    place = f"{reverted.url}/{reverted.folder}"
    left = [] if reverted.left is None else [f"{left_files(reverted.left)}."]
    if reverted.record is None:
        deleted = f"{place} had changed nothing yet; the folder of this {kind.noun} was deleted."
        return "\n".join([deleted, *left])
    had_effect = "" if reverted.had_effect else ", which had not taken effect"
    batch = reverted.record.planned
    planned = (
        f"Batch {batch} stays planned. Before another change, start the query until the query has "
        "run this batch, or pass --force."
    )
    return "\n".join(
        [
            f"Checkpoint  {reverted.url}",
            f"Undone      {reverted.folder}{had_effect}",
            "",
            *_table(_changed_back(reverted), "before", "now"),
            *([] if batch == reverted.record.committed else ["", planned]),
            *left,
        ]
    )


def _changed_back(reverted: RevertedChange) -> Changed:
    """By name, the value before and after the undo. If the change had no effect, both values are
    the former value."""
    changed = {} if reverted.record is None else reverted.record.changed
    return {
        name: (after if reverted.had_effect else before, before)
        for name, (before, after) in changed.items()
    }


def _changed_as_json(changed: Changed) -> dict[str, Mapping[str, str | int]]:
    return {name: {"before": before, "after": after} for name, (before, after) in changed.items()}


def _table(changed: Changed, *heads: str) -> list[str]:
    """A line with the heads of the columns, and a line for each entry of `changed`."""
    rows = [("", *heads), *((name, *map(str, values)) for name, values in changed.items())]
    width = max(len(before) for _, before, _ in rows)
    return [f"{name:{_INDENT}}{before:{width}}  {after}" for name, before, after in rows]


def _when_to_apply(checkpoint: QueryCheckpoint) -> list[str]:
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


def _usage(checkpoint: QueryCheckpoint, operator: StatefulOperator) -> tuple[int, int]:
    """The number of files of the operator's stores, and their bytes. After a move to an object
    store, files in the checkpoint no longer count."""
    below = f"state/{operator.number}/"
    in_checkpoint = {file.path: file.length for file in checkpoint.files}
    lengths = in_checkpoint if checkpoint.place is None else dict(checkpoint.stored)
    own = [length for path, length in lengths.items() if path.startswith(below)]
    return len(own), sum(own)


def _checkpoint_as_json(checkpoint: QueryCheckpoint) -> dict[str, Any]:
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


def _checkpoint_as_lines(checkpoint: QueryCheckpoint) -> list[str]:
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
