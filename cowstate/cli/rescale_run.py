"""Runs `cowstate rescale` in a Spark session, and prints the result."""

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
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.rescaling.rescale import Rescale, RescaleError


def rescale_and_print(options: StoppedQueryOptions, partitions: int | None) -> None:
    """Run the command. `partitions`: None with `revert`. Raises ConfigurationError and
    UnsupportedOperationError if the command refuses, and RescaleError."""
    if options.revert == (partitions is not None):
        raise ConfigurationError(
            "--revert goes back to the former number of partitions: leave --partitions out"
            if options.revert
            else "--partitions is missing: say how many partitions the query is to have"
        )

    def run(spark: SparkSession) -> Report:
        files = CheckpointFiles(spark, options.checkpoint)
        if partitions is None:
            return run_revert(Rescale(), files, options)
        progress = shown_progress("dealing out", "did", "task")
        return run_change(Rescale(), files, partitions, options, progress)

    run_and_print("cowstate rescale", options.session, run, RescaleError)
