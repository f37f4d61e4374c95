"""The reports of `cowstate attach`, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from checkpoint_store.amounts import epochs_text
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.runs.attachment_plan import Attachment, StoredRuns


@dataclass(frozen=True, slots=True)
class AttachedOperator:
    """An operator, and how it goes on after the command. `stored`: the runs in the operator's
    store. `belongs_to`: the location of the checkpoint to which the store belonged before the
    command, None if not known. `attachment`: the epoch and the run to go on from. `run`: the new
    run that attached the store, None if the command attached nothing."""

    name: str
    stored: StoredRuns
    belongs_to: str | None
    attachment: Attachment
    run: Run | None = None

    @property
    def left_out(self) -> list[tuple[int, int, int]]:
        """The epochs that no longer count, a tuple for each run that has any: the number of the
        run, and the first and the last of its epochs that no longer count."""
        if not self.attachment.is_needed:
            return []
        by_run = groupby(self.attachment.left_out, key=lambda each: each.run_number)
        epochs = ((number, [each.epoch for each in of_run]) for number, of_run in by_run)
        return [(number, min(each), max(each)) for number, each in epochs]

    def run_id(self, number: int) -> str | None:
        """The id of a run; None if the store does not say."""
        name = self.stored.begun_as(number)
        return None if name is None else name.run.run_id


@dataclass(frozen=True, slots=True)
class AttachReport:
    """Findings and changes of the command. `committed`: the last batch that Spark committed, -1 if
    Spark committed no batch. `is_applied`: True if the command changed the stores (--apply)."""

    checkpoint: str
    query_id: str
    committed: int
    is_applied: bool
    operators: Sequence[AttachedOperator]


def as_json(report: AttachReport) -> dict[str, object]:
    """The report as a JSON object, which has a list of the operators."""
    return {
        "checkpoint": report.checkpoint,
        "query": report.query_id,
        "committed": report.committed,
        "applied": report.is_applied,
        "operators": [_operator_as_json(operator) for operator in report.operators],
    }


def _operator_as_json(operator: AttachedOperator) -> dict[str, object]:
    base, run = operator.attachment.base, operator.run
    return {
        "operator": operator.name,
        "url": operator.stored.url,
        "belongs_to": operator.belongs_to,
        "epoch": None if base is None else base.epoch,
        "run": None if base is None else base.run_number,
        "run_id": None if base is None else operator.run_id(base.run_number),
        "left_out": [
            {
                "run": number,
                "run_id": operator.run_id(number),
                "first_epoch": first,
                "last_epoch": last,
            }
            for number, first, last in operator.left_out
        ],
        "needed": operator.attachment.is_needed,
        "attached_as": None if run is None else {"run": run.number, "run_id": run.run_id},
    }


def as_text(report: AttachReport) -> str:
    """The report as lines of text."""
    lines = [
        f"Checkpoint  {report.checkpoint}",
        f"Query       {report.query_id}",
        f"Progress    {_progress(report.committed)}",
    ]
    for operator in report.operators:
        lines += ["", *_operator_lines(operator, report.committed)]
    return "\n".join([*lines, "", *_end(report)])


def _progress(committed: int) -> str:
    if committed < 0:
        return "Spark has committed no batch"
    return f"batch {committed} is the last one that Spark has committed"


def _operator_lines(operator: AttachedOperator, committed: int) -> list[str]:
    base = operator.attachment.base
    belongs = "belongs" if operator.run is None else "belonged"
    lines = [
        f"Operator {operator.name}  {operator.stored.url}",
        f"  {belongs} to {operator.belongs_to or 'an unknown location'}",
        "  begins with nothing"
        if base is None
        else f"  goes on from epoch {base.epoch} of {_run_text(operator, base.run_number)}",
    ]
    if base is not None and base.epoch < committed:
        lines.append(f"  has no later epoch up to batch {committed}")
    lines += [
        f"  does not count {epochs_text(first, last)} of {_run_text(operator, number)} any more"
        for number, first, last in operator.left_out
    ]
    if operator.run is not None:
        lines.append(f"  is attached by run {operator.run.number} ({operator.run.run_id})")
    elif not operator.attachment.is_needed:
        lines.append("  is attached already: nothing to do")
    return lines


def _run_text(operator: AttachedOperator, number: int) -> str:
    run_id = operator.run_id(number)
    return f"run {number}" if run_id is None else f"run {number} ({run_id})"


def _end(report: AttachReport) -> list[str]:
    if report.is_applied:
        return [
            f"Start the query with checkpointLocation {report.checkpoint}. Its stores refuse every "
            "other location, and runs that began before."
        ]
    if any(operator.attachment.is_needed for operator in report.operators):
        return [
            "Nothing was changed. Stop every query that uses these stores, then run this command "
            "with --apply."
        ]
    return ["Nothing was changed, and nothing has to be."]
