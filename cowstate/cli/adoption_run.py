"""Runs `cowstate adopt` in a Spark session, and prints the result."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cowstate.cli.stopped_query_run import Report, StoppedQueryOptions, run_and_print
from spark_state.errors import ConfigurationError
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
from spark_state.spark.stopped_query.checkpoint_change import ADOPTION, last_change
from spark_state.spark.stopped_query.checkpoint_report import shown_progress


def adopt_and_print(options: StoppedQueryOptions, to: str, store: str | None) -> None:
    """Run the command. `to`: a key of adoption_plan.TARGETS. `store`: the new place of the state,
    as `plan_adoption` takes the place. Raises ConfigurationError and UnsupportedOperationError if
    the command refuses, and AdoptionError."""
    target = adoption.AdoptionTarget(to, store)
    run_and_print(
        "cowstate adopt", options.session, lambda spark: _run(spark, options, target), AdoptionError
    )


def _run(
    spark: SparkSession, options: StoppedQueryOptions, target: adoption.AdoptionTarget
) -> Report:
    files = CheckpointFiles(spark, options.checkpoint)
    if options.revert:
        return _revert(files, options)
    checkpoint = read_checkpoint(files)
    if holds_transform_with_state(checkpoint):
        return _run_for_operator(spark, files, checkpoint, options, target)
    if options.apply:
        with shown_progress("converting", "converted", "store") as progress:
            applied = adoption.apply(
                spark, options.checkpoint, target, progress, force=options.force
            )
        return applied_as_text(applied), applied_as_json(applied)
    plan = target.plan(checkpoint)
    return plan_as_text(plan), plan_as_json(plan)


def _run_for_operator(
    spark: SparkSession,
    files: CheckpointFiles,
    checkpoint: QueryCheckpoint,
    options: StoppedQueryOptions,
    target: adoption.AdoptionTarget,
) -> Report:
    if target.store is not None:
        raise ConfigurationError(
            f"--store is for the state of the provider. {checkpoint.url} has state of "
            "transformWithState: name its store with --conf spark.cowstate.store=URL"
        )
    if options.apply:
        with shown_progress("converting", "converted", "task") as progress:
            applied = operator_adoption.apply(
                spark, files, target.to, progress, force=options.force
            )
        return adopted_as_text(applied), adopted_as_json(applied)
    checked = operator_adoption.check(spark, checkpoint, target.to)
    return checked_as_text(checked), checked_as_json(checked)


def _revert(files: CheckpointFiles, options: StoppedQueryOptions) -> Report:
    folder = last_change(files, ADOPTION)
    record = AdoptionRecord.of(folder)
    if record is None or record.store is None:
        reverted = adoption.revert(folder, force=options.force)
        return reverted_as_text(reverted), reverted_as_json(reverted)
    operator_adoption.revert(folder, record, force=options.force)
    place = files.url, folder.path
    return put_back_as_text(*place, record), put_back_as_json(*place, record)
