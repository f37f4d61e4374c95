"""The reports of `cowstate rescale`, as text and as JSON."""

from __future__ import annotations

from typing import Any

from checkpoint_store.amounts import size_text
from spark_state.spark.provider.query_checkpoint import PARTITIONS
from spark_state.spark.rescaling.rescale import AppliedRescale, RevertedRescale
from spark_state.spark.rescaling.rescale_edits import edited_paths
from spark_state.spark.rescaling.rescale_plan import RescaledOperator, RescalePlan
from spark_state.spark.stopped_query.checkpoint_report import (
    checkpoint_as_json,
    checkpoint_as_lines,
    when_to_apply,
)


def plan_as_json(plan: RescalePlan) -> dict[str, Any]:
    """The report of a dry run."""
    return {
        **checkpoint_as_json(plan.checkpoint),
        "from": plan.partitions,
        "to": plan.target,
        "rescaled": [
            {
                "operator": each.operator.number,
                "key": list(each.columns),
                "stores": list(each.operator.stores),
                "bytes": plan.bytes_of(each),
            }
            for each in plan.rescaled
        ],
        "single_partition": [operator.number for operator in plan.single],
        "edits": edited_paths(plan),
        "applied": False,
    }


def applied_as_json(applied: AppliedRescale) -> dict[str, Any]:
    """The report of an applied rescale."""
    return {
        **plan_as_json(applied.plan),
        "applied": True,
        "backup": applied.folder,
        "rows": {str(number): rows for number, rows in applied.rows.items()},
    }


def reverted_as_json(reverted: RevertedRescale) -> dict[str, Any]:
    """The report of a reverted rescale."""
    record = reverted.record
    return {
        "checkpoint": reverted.url,
        "reverted": reverted.folder,
        "partitions": record.partitions if record else None,
        "restored": [*record.edited] if record else [],
    }


def plan_as_text(plan: RescalePlan) -> str:
    """The report of a dry run."""
    lines = [
        *checkpoint_as_lines(plan.checkpoint),
        "",
        f"To go on with {plan.target} partitions instead of {plan.partitions}, rescale would",
        *(f"  - {step}" for step in _steps(plan)),
        "",
        *when_to_apply(plan.checkpoint),
    ]
    return "\n".join(lines)


def _steps(plan: RescalePlan) -> list[str]:
    steps = [_step(plan, each) for each in plan.rescaled] if plan.moves_rows else []
    steps += [
        f"leave operator {operator.number}, {operator.name}, as it is: it takes all rows in one "
        "partition"
        for operator in plan.single
    ]
    steps.append(f"set {PARTITIONS} = {plan.target} in {', '.join(edited_paths(plan))}")
    return steps


def _step(plan: RescalePlan, rescaled: RescaledOperator) -> str:
    operator = rescaled.operator
    stores = "a store" if len(operator.stores) == 1 else f"{len(operator.stores)} stores"
    return (
        f"deal out the rows of version {plan.checkpoint.version} of operator {operator.number} by "
        f"the hash of {', '.join(rescaled.columns)}: {plan.partitions} partitions of {stores}, "
        f"{size_text(plan.bytes_of(rescaled))}, to {plan.target}; read them back and compare"
    )


def applied_as_text(applied: AppliedRescale) -> str:
    """The report of an applied rescale."""
    plan = applied.plan
    url = plan.checkpoint.url
    lines = [
        *checkpoint_as_lines(plan.checkpoint),
        "",
        f"Now with {plan.target} partitions instead of {plan.partitions}.",
    ]
    for number, rows in applied.rows.items():
        lines.append(f"Operator {number}: {rows:,} rows were dealt out, and none is missing.")
    lines += [
        f"Backup: {url}/{applied.folder}",
        "Start the query; its checkpoint has the number of partitions.",
        f"Until the query has run, cowstate rescale --revert {url} undoes this.",
    ]
    return "\n".join(lines)


def reverted_as_text(reverted: RevertedRescale) -> str:
    """The report of a reverted rescale."""
    if reverted.record is None:
        return (
            f"{reverted.url}/{reverted.folder} belonged to a rescale that had changed nothing yet; "
            "the folder was deleted."
        )
    return (
        f"{reverted.url} has {reverted.record.partitions} partitions again, as before "
        f"{reverted.folder}."
    )
