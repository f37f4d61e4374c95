"""Runs `cowstate adopt` in a Spark session, and prints the result."""

from __future__ import annotations

from argparse import Namespace

from pyspark.sql import SparkSession

from cowstate.cli.stopped_query_run import (
    Report,
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


def adopt_and_print(arguments: Namespace) -> None:
    """Run the command. Raises ConfigurationError and UnsupportedOperationError if the command
    refuses, and AdoptionError."""
    run_and_print(arguments, _run, AdoptionError)


def _run(spark: SparkSession, arguments: Namespace) -> Report:
    files = CheckpointFiles(spark, arguments.checkpoint)
    if arguments.revert:
        if holds_operator(last_change(files, ADOPTION).begun()):
            return run_revert(OperatorAdoption(spark), files, arguments)
        return run_revert(ProviderAdoption(), files, arguments)
    if arguments.apply:
        end_last(files)
    target = AdoptionTarget(arguments.to, arguments.store)
    if holds_transform_with_state(read_checkpoint(files)):
        progress = shown_progress("converting", "converted", "task")
        return run_change(OperatorAdoption(spark), files, target, arguments, progress)
    progress = shown_progress("converting", "converted", "store")
    return run_change(ProviderAdoption(), files, target, arguments, progress)
