"""Runs `cowstate adopt` and `cowstate rescale`, which change the checkpoint of a stopped query.
`run_and_print` runs any command that works on a query's checkpoint, and prints its report."""

from __future__ import annotations

import importlib.util
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
from spark_state.errors import ConfigurationError, CowstateError
from spark_state.spark.adoption.adoption import AdoptionTarget, ProviderAdoption
from spark_state.spark.adoption.operator_adoption import OperatorAdoption, holds_operator
from spark_state.spark.adoption.operator_adoption_plan import holds_transform_with_state
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import read_checkpoint
from spark_state.spark.rescaling.rescale import Rescale
from spark_state.spark.stopped_query import change_report
from spark_state.spark.stopped_query.change_folder import last_change
from spark_state.spark.stopped_query.change_record import ADOPTION
from spark_state.spark.stopped_query.checkpoint_change import (
    Change,
    Progress,
    StateNotWrittenError,
    apply,
    end_last,
    revert,
)

_TENTHS = 10
TargetT = TypeVar("TargetT")
PlanT = TypeVar("PlanT")

# A report as text, and as JSON.
Report = tuple[str, dict[str, object]]


def adopt_and_print(arguments: Namespace) -> None:
    """Run `cowstate adopt`. Raises ConfigurationError or UnsupportedOperationError if the command
    refuses; StateNotWrittenError if the new state cannot be written or differs from the old state,
    or if the JVM raises an error."""
    run_and_print(arguments, _adopt, StateNotWrittenError)


def _adopt(spark: SparkSession, arguments: Namespace) -> Report:
    files = CheckpointFiles(spark, arguments.checkpoint)
    if arguments.revert:
        if holds_operator(last_change(files, ADOPTION).begun()):
            return _revert(OperatorAdoption(spark), files, arguments)
        return _revert(ProviderAdoption(), files, arguments)
    if arguments.apply:
        end_last(files)
    target = AdoptionTarget(arguments.to, arguments.store)
    if holds_transform_with_state(read_checkpoint(files)):
        progress = _shown_progress("converting", "converted", "task")
        return _change(OperatorAdoption(spark), files, target, arguments, progress)
    progress = _shown_progress("converting", "converted", "store")
    return _change(ProviderAdoption(), files, target, arguments, progress)


def rescale_and_print(arguments: Namespace) -> None:
    """Run `cowstate rescale`. Raises ConfigurationError or UnsupportedOperationError if the command
    refuses; StateNotWrittenError if the new state cannot be written, or if the JVM raises an
    error."""
    if arguments.revert == (arguments.partitions is not None):
        raise ConfigurationError(
            "--revert goes back to the former number of partitions: leave --partitions out"
            if arguments.revert
            else "--partitions is missing: say how many partitions the query is to have"
        )
    run_and_print(arguments, _rescale, StateNotWrittenError)


def _rescale(spark: SparkSession, arguments: Namespace) -> Report:
    files = CheckpointFiles(spark, arguments.checkpoint)
    if arguments.revert:
        return _revert(Rescale(), files, arguments)
    progress = _shown_progress("dealing out", "did", "task")
    return _change(Rescale(), files, arguments.partitions, arguments, progress)


def run_and_print(
    arguments: Namespace,
    run: Callable[[SparkSession, Namespace], Report],
    error_class: Callable[[str], CowstateError],
) -> None:
    """Call `run` in a session of the command, and print the report that `run` returns. Raises the
    errors of `run`. An error of the JVM is raised as an `error_class` that names the checkpoint."""
    name, settings = f"cowstate {arguments.command}", dict(arguments.conf)
    with command_session(name, arguments.master, settings) as spark:
        try:
            text, content = run(spark, arguments)
        except Py4JJavaError as error:
            reason = error.java_exception.toString()
            told = error_class(f"the files of {arguments.checkpoint} cannot be used: {reason}")
            for note in getattr(error, "__notes__", ()):
                told.add_note(note)
            raise told from error
    print(json.dumps(content) if arguments.json else text)


def _change(
    change: Change[TargetT, PlanT],
    files: CheckpointFiles,
    target: TargetT,
    arguments: Namespace,
    progress: AbstractContextManager[Progress],
) -> Report:
    """Plan or apply a change. Raises the errors of the change and of `apply`."""
    if not arguments.apply:
        planned = change.planned_change(change.plan(files, read_checkpoint(files), target))
        text = change_report.plan_as_text(change.kind, planned)
        return text, change_report.plan_as_json(planned)
    with progress as told:
        applied = apply(change, files, target, told, force=arguments.force)
    text = change_report.applied_as_text(change.kind, applied)
    return text, change_report.applied_as_json(applied)


def _revert(change: Change[TargetT, PlanT], files: CheckpointFiles, arguments: Namespace) -> Report:
    reverted = revert(change, files, force=arguments.force)
    text = change_report.reverted_as_text(change.kind, reverted)
    return text, change_report.reverted_as_json(reverted)


@contextmanager
def _shown_progress(doing: str, done: str, unit: str) -> Iterator[Progress]:
    """Show progress on standard error: tqdm's bar on a terminal, or a line for each tenth if there
    is no terminal or no tqdm. `doing`, `done`: the verb, such as "converting" and "converted";
    `unit`: the unit of the count."""
    if importlib.util.find_spec("tqdm") is None or not sys.stderr.isatty():
        yield _lines(done, unit)
        return
    from tqdm import tqdm

    with tqdm(unit=unit, desc=doing, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def _lines(done: str, unit: str) -> Progress:
    shown = 0

    def show(count: int, total: int) -> None:
        nonlocal shown
        tenths = count * _TENTHS // total
        if tenths > shown:
            shown = tenths
            print(f"{done} {count} of {total} {unit}s", file=sys.stderr, flush=True)

    return show
