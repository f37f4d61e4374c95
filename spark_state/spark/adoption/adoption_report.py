"""The reports of `cowstate adopt`, as text and as JSON."""

from __future__ import annotations

from typing import Any

from checkpoint_store.object_names import STATE_PLACE
from spark_state.spark.adoption.adoption import AppliedAdoption, RevertedAdoption, left_files
from spark_state.spark.adoption.adoption_plan import HDFS_CLASS, AdoptionPlan
from spark_state.spark.provider.provider_class import PROVIDER_KEY, short_name
from spark_state.spark.stopped_query.checkpoint_report import (
    checkpoint_as_json,
    checkpoint_as_lines,
    when_to_apply,
)

_WHEN_TO_DELETE = "when you do not want to go back, and no copy of this checkpoint needs them"


def plan_as_json(plan: AdoptionPlan) -> dict[str, Any]:
    return {
        **checkpoint_as_json(plan.checkpoint),
        "target": plan.target,
        "stores_to_convert": len(plan.conversions),
        "store": None if plan.place is None else plan.place.root,
        "edits": [entry.path for entry in plan.edits],
        "removals": [file.path for file in plan.removals],
        "applied": False,
    }


def applied_as_json(applied: AppliedAdoption) -> dict[str, Any]:
    return {
        **plan_as_json(applied.plan),
        "applied": True,
        "backup": applied.folder,
        "rows": applied.rows,
        "created": list(applied.created),
    }


def reverted_as_json(reverted: RevertedAdoption) -> dict[str, Any]:
    record = reverted.record
    return {
        "checkpoint": reverted.url,
        "reverted": reverted.folder,
        "provider": record.source if record else None,
        "restored": [*record.edited, *record.removed] if record else [],
        "deleted": list(record.created) if record else [],
        "left": reverted.left,
    }


def _steps(plan: AdoptionPlan) -> list[str]:
    steps = []
    if plan.conversions:
        where = "" if plan.place is None else f" to {plan.place.url}"
        steps.append(
            f"write the rows of version {plan.checkpoint.version} of {len(plan.conversions)} "
            f"stores for {short_name(plan.target)}{where}, read them back and compare"
        )
    elif plan.checkpoint.provider == HDFS_CLASS:
        steps.append("convert nothing: cowstate reads the .delta and .snapshot files")
    if plan.removals:
        steps.append(
            f"remove {len(plan.removals)} files that {short_name(plan.target)} left when it had "
            "this checkpoint before"
        )
    if plan.place is not None:
        steps.append(f"name {plan.place.url} in {STATE_PLACE}")
    if plan.edits:
        edits = ", ".join(entry.path for entry in plan.edits)
        steps.append(f"set {PROVIDER_KEY} in {edits}")
    if plan.leaves_store:
        steps.append(f"remove {STATE_PLACE}: the state is in the checkpoint then")
    return steps


def _where(plan: AdoptionPlan) -> str:
    """The place of the state, for a report; empty if the place does not change."""
    if plan.place is not None:
        return f" with its state in {plan.place.url}"
    return " with its state in the checkpoint" if plan.leaves_store else ""


def plan_as_text(plan: AdoptionPlan) -> str:
    lines = [
        *checkpoint_as_lines(plan.checkpoint),
        "",
        f"To continue on {short_name(plan.target)}{_where(plan)}, adopt would",
        *(f"  - {step}" for step in _steps(plan)),
        "",
        *when_to_apply(plan.checkpoint),
    ]
    return "\n".join(lines)


def applied_as_text(applied: AppliedAdoption) -> str:
    plan = applied.plan
    url = plan.checkpoint.url
    if plan.target == HDFS_CLASS:
        start = "Start the query; its checkpoint names the provider."
    else:
        start = (
            "Start the query with cowstate's jar: spark_state.configure(SparkSession.builder), or "
            "the output of `cowstate jar --options`."
        )
    lines = [*checkpoint_as_lines(plan.checkpoint), ""]
    lines.append(f"Now on {short_name(plan.target)}{_where(plan)}.")
    if plan.conversions:
        stores = f"{len(plan.conversions)} stores"
        lines.append(f"{applied.rows:,} rows of {stores} were written and read back.")
    lines += [
        f"Backup: {url}/{applied.folder}",
        start,
        f"Until the query has run, cowstate adopt --revert {url} undoes this.",
    ]
    former = plan.checkpoint.place
    if former is not None:
        lines.append(f"The former files stay in {former.root}. Delete them {_WHEN_TO_DELETE}.")
    elif plan.place is not None:
        lines.append(
            f"The former files stay below {url}/state. Delete them, but no folder _metadata, "
            f"{_WHEN_TO_DELETE}."
        )
    return "\n".join(lines)


def reverted_as_text(reverted: RevertedAdoption) -> str:
    left = [] if reverted.left is None else [f"{left_files(reverted.left)}."]
    return "\n".join([_what_was_reverted(reverted), *left])


def _what_was_reverted(reverted: RevertedAdoption) -> str:
    if reverted.record is None:
        return (
            f"{reverted.url}/{reverted.folder} belonged to an adoption that had changed nothing "
            "yet; the folder was deleted."
        )
    record = reverted.record
    restored = len(record.edited) + len(record.removed)
    return (
        f"{reverted.url} is on {short_name(record.source)} again, as before {reverted.folder}: "
        f"{restored} files were restored, {len(record.created)} deleted."
    )
