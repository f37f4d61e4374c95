"""Runs `cowstate adopt` in a Spark session, and prints the result."""

from __future__ import annotations

from pyspark.sql import SparkSession

from cowstate.cli.stopped_query_run import (
    Report,
    StoppedQueryOptions,
    run_and_print,
    run_change,
    run_revert,
    shown_progress,
)
from spark_state.spark.adoption.adoption import AdoptionError, AdoptionTarget, ProviderAdoption
from spark_state.spark.adoption.operator_adoption import OperatorAdoption, holds_operator
from spark_state.spark.adoption.operator_adoption_plan import holds_transform_with_state
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import read_checkpoint
from spark_state.spark.stopped_query.change_folder import last_change
from spark_state.spark.stopped_query.change_record import ADOPTION
from spark_state.spark.stopped_query.checkpoint_change import end_last


def adopt_and_print(options: StoppedQueryOptions, to: str, store: str | None) -> None:
    """Run the command. `to`: a key of adoption_plan.TARGETS. `store`: the new place of the state,
    as `plan_adoption` takes the place. Raises ConfigurationError and UnsupportedOperationError if
    the command refuses, and AdoptionError."""
    target = AdoptionTarget(to, store)
    run_and_print(
        "cowstate adopt", options.session, lambda spark: _run(spark, options, target), AdoptionError
    )


def _run(spark: SparkSession, options: StoppedQueryOptions, target: AdoptionTarget) -> Report:
    files = CheckpointFiles(spark, options.checkpoint)
    if options.revert:
        if holds_operator(last_change(files, ADOPTION).begun()):
            return run_revert(OperatorAdoption(spark), files, options)
        return run_revert(ProviderAdoption(), files, options)
    if options.apply:
        end_last(files)
    if holds_transform_with_state(read_checkpoint(files)):
        progress = shown_progress("converting", "converted", "task")
        return run_change(OperatorAdoption(spark), files, target, options, progress)
    progress = shown_progress("converting", "converted", "store")
    return run_change(ProviderAdoption(), files, target, options, progress)
