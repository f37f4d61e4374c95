"""Runs a command that works on a query's checkpoint, and prints its report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cowstate.command_session import command_session
from spark_state.errors import CowstateError

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
