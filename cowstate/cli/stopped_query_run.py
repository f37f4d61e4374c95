"""Runs a command that works on a query's checkpoint, and prints its report. `run_change` runs a
command that changes the checkpoint."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
from spark_state.errors import CowstateError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import read_checkpoint
from spark_state.spark.stopped_query import change_report
from spark_state.spark.stopped_query.checkpoint_change import Change, Progress, apply, revert

_TENTHS = 10
TargetT = TypeVar("TargetT")
PlanT = TypeVar("PlanT")

# A report as text, and as JSON.
Report = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The checkpoint, and the arguments that `add_session_options` adds."""

    checkpoint: str
    master: str
    settings: Mapping[str, str]
    json_report: bool

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> SessionOptions:
        return cls(
            checkpoint=arguments.checkpoint,
            master=arguments.master,
            settings=dict(arguments.conf),
            json_report=arguments.json,
        )


@dataclass(frozen=True, slots=True)
class StoppedQueryOptions:
    """The arguments that `add_stopped_query_options` adds."""

    session: SessionOptions
    apply: bool
    revert: bool
    force: bool

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> StoppedQueryOptions:
        return cls(
            session=SessionOptions.of(arguments),
            apply=arguments.apply,
            revert=arguments.revert,
            force=arguments.force,
        )

    @property
    def checkpoint(self) -> str:
        return self.session.checkpoint


def run_and_print(
    name: str,
    options: SessionOptions,
    run: Callable[[SparkSession], Report],
    error_class: Callable[[str], CowstateError],
) -> None:
    """Run the command `name` in a session, and print the report of `run`. Raises the errors of
    `run`; for an error of the JVM, an `error_class` that names the checkpoint."""
    with command_session(name, options.master, options.settings) as spark:
        try:
            text, content = run(spark)
        except Py4JJavaError as error:
            reason = error.java_exception.toString()
            told = error_class(f"the files of {options.checkpoint} cannot be used: {reason}")
            for note in getattr(error, "__notes__", ()):
                told.add_note(note)
            raise told from error
    print(json.dumps(content) if options.json_report else text)


def run_change(
    change: Change[TargetT, PlanT],
    files: CheckpointFiles,
    target: TargetT,
    options: StoppedQueryOptions,
    progress: AbstractContextManager[Progress],
) -> Report:
    """Plan or apply a change. Raises the errors of the change and of `apply`."""
    if not options.apply:
        planned = change.planned_change(change.plan(files, read_checkpoint(files), target))
        text = change_report.plan_as_text(change.kind, planned)
        return text, change_report.plan_as_json(planned)
    with progress as told:
        applied = apply(change, files, target, told, force=options.force)
    text = change_report.applied_as_text(change.kind, applied)
    return text, change_report.applied_as_json(applied)


def run_revert(
    change: Change[TargetT, PlanT], files: CheckpointFiles, options: StoppedQueryOptions
) -> Report:
    """Undo the last change. Raises the errors of `revert`."""
    reverted = revert(change, files, force=options.force)
    text = change_report.reverted_as_text(change.kind, reverted)
    return text, change_report.reverted_as_json(reverted)


@contextmanager
def shown_progress(doing: str, done: str, unit: str) -> Iterator[Progress]:
    """Show progress on standard error: tqdm's bar, or a line for each tenth without a terminal or
    tqdm. `doing`, `done`: the verb; `unit`: the unit of the count."""
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
