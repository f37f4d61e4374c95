"""Runs `cowstate adopt` in a Spark session, and prints the result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
from spark_state.spark.adoption import adoption, operator_adoption
from spark_state.spark.adoption.adoption_record import AdoptionError, AdoptionRecord
from spark_state.spark.adoption.adoption_report import (
    applied_as_json,
    applied_as_text,
    plan_as_json,
    plan_as_text,
    reverted_as_json,
    reverted_as_text,
)
from spark_state.spark.adoption.operator_adoption_plan import holds_transform_with_state
from spark_state.spark.adoption.operator_adoption_report import (
    adopted_as_json,
    adopted_as_text,
    checked_as_json,
    checked_as_text,
    put_back_as_json,
    put_back_as_text,
)
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, read_checkpoint
from spark_state.spark.stopped_query.checkpoint_change import (
    ADOPTION,
    last_change,
    seconds_since_change,
)
from spark_state.spark.stopped_query.checkpoint_report import shown_progress


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """The arguments of the command. to: a key of adoption_plan.TARGETS. store: where the state
    goes, as `plan_adoption` takes it."""

    checkpoint: str
    to: str
    store: str | None
    apply: bool
    revert: bool
    force: bool
    master: str
    settings: Mapping[str, str]
    json_report: bool


def adopt_and_print(options: AdoptOptions) -> None:
    """Runs the command.

    Raises ConfigurationError and UnsupportedOperationError if it refuses, and AdoptionError.
    """
    with command_session("cowstate adopt", options.master, options.settings) as spark:
        try:
            text, content = _run(spark, options)
        except Py4JJavaError as error:
            reason = error.java_exception.toString()
            raise AdoptionError(
                f"the files of {options.checkpoint} cannot be used: {reason}"
            ) from error
    print(json.dumps(content) if options.json_report else text)


def _run(spark: SparkSession, options: AdoptOptions) -> tuple[str, dict[str, object]]:
    files = CheckpointFiles(spark, options.checkpoint)
    if options.revert:
        return _revert(files, options)
    checkpoint = read_checkpoint(files)
    if holds_transform_with_state(checkpoint):
        return _run_for_operator(spark, files, checkpoint, options)
    target = adoption.AdoptionTarget(options.to, options.store)
    if options.apply:
        with shown_progress("converting", "converted", "store") as progress:
            applied = adoption.apply(
                spark, options.checkpoint, target, progress, force=options.force
            )
        return applied_as_text(applied), applied_as_json(applied)
    plan = target.plan(checkpoint)
    quiet = _seconds_quiet(files, checkpoint)
    return plan_as_text(plan, quiet), plan_as_json(plan)


def _run_for_operator(
    spark: SparkSession, files: CheckpointFiles, checkpoint: QueryCheckpoint, options: AdoptOptions
) -> tuple[str, dict[str, object]]:
    if options.apply:
        with shown_progress("converting", "converted", "task") as progress:
            applied = operator_adoption.apply(
                spark, files, checkpoint, options.to, progress, force=options.force
            )
        return adopted_as_text(applied), adopted_as_json(applied)
    checked = operator_adoption.check(spark, checkpoint, options.to)
    quiet = _seconds_quiet(files, checkpoint)
    return checked_as_text(checked, quiet), checked_as_json(checked)


def _revert(files: CheckpointFiles, options: AdoptOptions) -> tuple[str, dict[str, object]]:
    folder = last_change(files, ADOPTION)
    record = AdoptionRecord.of(folder)
    if record is None or record.store is None:
        reverted = adoption.revert(folder, force=options.force)
        return reverted_as_text(reverted), reverted_as_json(reverted)
    operator_adoption.revert(folder, record)
    place = files.url, folder.path
    return put_back_as_text(*place, record), put_back_as_json(*place, record)


def _seconds_quiet(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> float:
    return seconds_since_change(files, checkpoint, int(time.time() * 1000))
