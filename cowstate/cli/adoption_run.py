"""Runs `cowstate adopt` in a Spark session, and prints the result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
from spark_state.spark.adoption import adoption
from spark_state.spark.adoption.adoption import AdoptionError
from spark_state.spark.adoption.adoption_plan import plan_adoption
from spark_state.spark.adoption.adoption_report import (
    applied_as_json,
    applied_as_text,
    plan_as_json,
    plan_as_text,
    reverted_as_json,
    reverted_as_text,
    shown_progress,
)
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import read_checkpoint


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """The arguments of the command. to: a key of adoption_plan.TARGETS."""

    checkpoint: str
    to: str
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
    if options.revert:
        reverted = adoption.revert(spark, options.checkpoint, force=options.force)
        return reverted_as_text(reverted), reverted_as_json(reverted)
    if options.apply:
        with shown_progress() as progress:
            applied = adoption.apply(
                spark, options.checkpoint, options.to, progress, force=options.force
            )
        return applied_as_text(applied), applied_as_json(applied)
    files = CheckpointFiles(spark, options.checkpoint)
    checkpoint = read_checkpoint(files)
    plan = plan_adoption(checkpoint, options.to)
    quiet = adoption.seconds_since_change(files, checkpoint, int(time.time() * 1000))
    return plan_as_text(plan, quiet, adoption.QUIET_SECONDS), plan_as_json(plan)
