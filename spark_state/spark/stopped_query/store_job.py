"""Waits for a Spark job over the stores of a checkpoint, the JVM's StoreJob."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from spark_state.errors import CowstateError
from spark_state.spark.stopped_query.checkpoint_change import Progress

_POLL_SECONDS = 0.1


def run_store_job(
    start: Callable[[], Any], progress: Progress, failed: type[CowstateError]
) -> list[dict[str, Any]]:
    """Run a job, and return the results of its tasks. Raises `failed` if a task failed. The job has
    always ended when this function ends, also if the wait is interrupted."""
    try:
        job = start()
        try:
            while not job.isDone():
                progress(job.finished(), job.total())
                time.sleep(_POLL_SECONDS)
            progress(job.finished(), job.total())
            outcomes: list[dict[str, Any]] = json.loads(job.result())
        finally:
            job.cancel()
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        raise failed(f"{reason}. Nothing was changed") from error
    for outcome in outcomes:
        if "error" in outcome:
            raise failed(f"{outcome['error']}. Nothing was changed")
    return outcomes
