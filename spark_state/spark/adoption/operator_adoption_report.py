"""The reports of `cowstate adopt` about a transformWithState, as text and as JSON."""

from __future__ import annotations

from typing import Any

from checkpoint_store.schema_text import schema_text
from spark_state.spark.adoption.adoption_record import AdoptionRecord
from spark_state.spark.adoption.operator_adoption import AppliedOperatorAdoption, CheckedAdoption
from spark_state.spark.session.operator_configuration import STORE_KEY
from spark_state.spark.stopped_query.checkpoint_report import (
    checkpoint_as_json,
    checkpoint_as_lines,
    when_to_apply,
)


def checked_as_json(checked: CheckedAdoption) -> dict[str, Any]:
    """The report of a dry run."""
    return {
        **checkpoint_as_json(checked.plan.checkpoint),
        "target": checked.store_url,
        "epoch": checked.plan.epoch,
        "time_mode": checked.plan.time_mode,
        "max_parallelism": checked.configuration.max_parallelism,
        "states": [
            {
                "name": state.name,
                "kind": state.kind,
                "schema": schema_text(state.schema_json),
                "expires": state.ttl_ms is not None,
            }
            for state in checked.states.descriptors
        ],
        "sources": checked.plan.sources,
        "edits": [entry.path for entry in checked.plan.edits],
        "applied": False,
    }


def checked_as_text(checked: CheckedAdoption) -> str:
    """The report of a dry run."""
    plan = checked.plan
    lines = [*checkpoint_as_lines(plan.checkpoint), *_states(checked), ""]
    lines += [
        "To continue on cowstate, adopt would",
        f"  - write the state after batch {plan.epoch} as an epoch of {checked.store_url}, with "
        f"{checked.configuration.max_parallelism} key groups, and compare",
    ]
    if plan.edits:
        edits = ", ".join(entry.path for entry in plan.edits)
        lines.append(f"  - add a source to {edits}: the clock of time mode {plan.time_mode!r}")
    lines += [
        "  - move state/ below _cowstate_adopt/",
        "",
        *_about_sources(checked),
        *when_to_apply(plan.checkpoint),
    ]
    return "\n".join(lines)


def adopted_as_json(applied: AppliedOperatorAdoption) -> dict[str, Any]:
    """The report of an applied adoption."""
    return {
        **checked_as_json(applied.checked),
        "applied": True,
        "backup": applied.folder,
        "rows": applied.rows,
    }


def adopted_as_text(applied: AppliedOperatorAdoption) -> str:
    """The report of an applied adoption."""
    checked = applied.checked
    url = checked.plan.checkpoint.url
    rows = ", ".join(f"{count:,} of {name}" for name, count in applied.rows.items())
    return "\n".join(
        [
            *checkpoint_as_lines(checked.plan.checkpoint),
            *_states(checked),
            "",
            f"Now on cowstate, in {checked.store_url}.",
            f"Rows: {rows}; all are as in Spark's store.",
            f"Backup: {url}/{applied.folder}",
            "Start the query with spark_state.enable(spark), "
            f"{STORE_KEY}={checked.configuration.store} and "
            f"spark.cowstate.maxParallelism={checked.configuration.max_parallelism}.",
            f"Until the query has run, cowstate adopt --revert {url} undoes this.",
        ]
    )


def put_back_as_json(url: str, folder: str, record: AdoptionRecord) -> dict[str, Any]:
    """The report of a reverted adoption."""
    return {
        "checkpoint": url,
        "reverted": folder,
        "provider": record.source,
        "restored": [*record.edited, "state"],
        "deleted": [record.store],
    }


def put_back_as_text(url: str, folder: str, record: AdoptionRecord) -> str:
    """The report of a reverted adoption."""
    return (
        f"{url} is on Spark's own operator again, as before {folder}: its state is back in its "
        f"place, and {record.store} was deleted."
    )


def _about_sources(checked: CheckedAdoption) -> list[str]:
    plan = checked.plan
    if not plan.edits or plan.sources == 1:
        return []
    return [
        f"The query has {plan.sources} sources, and its log does not say where they are. If rows "
        "of one come in",
        "behind the operator, as in a union with its output, the query will not start on cowstate. "
        "Then undo",
        f"the adoption with cowstate adopt --revert {plan.checkpoint.url}",
        "",
    ]


def _states(checked: CheckedAdoption) -> list[str]:
    lines = [f"Time mode   {checked.plan.time_mode}"]
    for state in checked.states.descriptors:
        expires = ", with a time to live" if state.ttl_ms is not None else ""
        lines.append(
            f"State       {state.name}: {state.kind}{expires}, {schema_text(state.schema_json)}"
        )
    return lines
