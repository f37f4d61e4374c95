"""Runs `cowstate rescale` in a Spark session, and prints the result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
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
from spark_state.spark.stopped_query.checkpoint_change import (
    RESCALE,
    last_change,
    seconds_since_change,
)
from spark_state.spark.stopped_query.checkpoint_report import shown_progress


@dataclass(frozen=True, slots=True)
class RescaleOptions:
    """The arguments of the command. partitions: None with `revert`."""

    checkpoint: str
    partitions: int | None
    apply: bool
    revert: bool
    force: bool
    master: str
    settings: Mapping[str, str]
    json_report: bool


def rescale_and_print(options: RescaleOptions) -> None:
    """Runs the command.

    Raises ConfigurationError and UnsupportedOperationError if it refuses, and RescaleError.
    """
    if options.revert == (options.partitions is not None):
        raise ConfigurationError(
            "--revert goes back to the former number of partitions: leave --partitions out"
            if options.revert
            else "--partitions is missing: say how many partitions the query is to have"
        )
    with command_session("cowstate rescale", options.master, options.settings) as spark:
        try:
            text, content = _run(spark, options)
        except Py4JJavaError as error:
            reason = error.java_exception.toString()
            raise rescale.RescaleError(
                f"the files of {options.checkpoint} cannot be used: {reason}"
            ) from error
    print(json.dumps(content) if options.json_report else text)


def _run(spark: SparkSession, options: RescaleOptions) -> tuple[str, dict[str, object]]:
    files = CheckpointFiles(spark, options.checkpoint)
    if options.partitions is None:
        reverted = rescale.revert(last_change(files, RESCALE), force=options.force)
        return reverted_as_text(reverted), reverted_as_json(reverted)
    if options.apply:
        with shown_progress("dealing out", "did", "task") as progress:
            applied = rescale.apply(
                spark, options.checkpoint, options.partitions, progress, force=options.force
            )
        return applied_as_text(applied), applied_as_json(applied)
    checkpoint = read_checkpoint(files)
    plan = rescale.check(files, checkpoint, options.partitions)
    quiet = seconds_since_change(files, checkpoint, int(time.time() * 1000))
    return plan_as_text(plan, quiet), plan_as_json(plan)
