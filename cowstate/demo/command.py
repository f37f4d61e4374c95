"""Runs the flights job for the command line: prints the result and chooses the exit code."""

from __future__ import annotations

import json
import sys

from pyspark.errors import StreamingQueryException

from cowstate.demo.job import DemoOptions, run_demo
from cowstate.demo.report import StreamOutcome, as_json, as_text

AGREES, DIFFERS_OR_FAILED, INTERRUPTED = 0, 1, 130


def run_and_print(options: DemoOptions, *, json_report: bool) -> int:
    """Run or resume the job, print its report, and return the exit code."""
    try:
        result = run_demo(options)
    except StreamingQueryException as error:
        print(f"The query failed; the same command resumes it.\n{error}", file=sys.stderr)
        return DIFFERS_OR_FAILED
    if isinstance(result, StreamOutcome):
        print(
            f"Stopped with {result.epochs_done} epochs done; the same command resumes the run. "
            f"To begin anew, remove {options.out}.",
            file=sys.stderr,
        )
        return INTERRUPTED
    print(json.dumps(as_json(result)) if json_report else as_text(result))
    if result.differences:
        print(f"The stream's answer is wrong:\n{result.differences}", file=sys.stderr)
        return DIFFERS_OR_FAILED
    return AGREES
