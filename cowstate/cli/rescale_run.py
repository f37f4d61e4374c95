"""Runs `cowstate rescale` in a Spark session, and prints the result."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cowstate.cli.stopped_query_run import Report, StoppedQueryOptions, run_and_print
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import read_checkpoint
from spark_state.spark.rescaling import rescale
from spark_state.spark.rescaling.rescale_report import (
    applied_as_json,
    applied_as_text,
    plan_as_json,
    plan_as_text,
    reverted_as_json,
    reverted_as_text,
)
from spark_state.spark.stopped_query.checkpoint_change import RESCALE, last_change
from spark_state.spark.stopped_query.checkpoint_report import shown_progress


def rescale_and_print(options: StoppedQueryOptions, partitions: int | None) -> None:
    """Run the command. `partitions`: None with `revert`. Raises ConfigurationError and
    UnsupportedOperationError if the command refuses, and RescaleError."""
    if options.revert == (partitions is not None):
        raise ConfigurationError(
            "--revert goes back to the former number of partitions: leave --partitions out"
            if options.revert
            else "--partitions is missing: say how many partitions the query is to have"
        )
    run_and_print(
        "cowstate rescale",
        options.session,
        lambda spark: _run(spark, options, partitions),
        rescale.RescaleError,
    )


def _run(spark: SparkSession, options: StoppedQueryOptions, partitions: int | None) -> Report:
    files = CheckpointFiles(spark, options.checkpoint)
    if partitions is None:
        reverted = rescale.revert(last_change(files, RESCALE), force=options.force)
        return reverted_as_text(reverted), reverted_as_json(reverted)
    if options.apply:
        with shown_progress("dealing out", "did", "task") as progress:
            applied = rescale.apply(
                spark, options.checkpoint, partitions, progress, force=options.force
            )
        return applied_as_text(applied), applied_as_json(applied)
    checkpoint = read_checkpoint(files)
    plan = rescale.check(files, checkpoint, partitions)
    return plan_as_text(plan), plan_as_json(plan)
