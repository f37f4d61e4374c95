"""Runs `cowstate rescale` in a Spark session, and prints the result."""

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
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.rescaling.rescale import Rescale, RescaleError


def rescale_and_print(arguments: Namespace) -> None:
    """Run the command. Raises ConfigurationError and UnsupportedOperationError if the command
    refuses, and RescaleError."""
    if arguments.revert == (arguments.partitions is not None):
        raise ConfigurationError(
            "--revert goes back to the former number of partitions: leave --partitions out"
            if arguments.revert
            else "--partitions is missing: say how many partitions the query is to have"
        )
    run_and_print(arguments, _run, RescaleError)


def _run(spark: SparkSession, arguments: Namespace) -> Report:
    files = CheckpointFiles(spark, arguments.checkpoint)
    if arguments.revert:
        return run_revert(Rescale(), files, arguments)
    progress = shown_progress("dealing out", "did", "task")
    return run_change(Rescale(), files, arguments.partitions, arguments, progress)
