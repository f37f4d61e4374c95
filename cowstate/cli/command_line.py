"""The command `cowstate`, with a module for each of its commands.

Exit codes: 0 done; 1 the answer of the demo differs, or its query failed; 2 the command refused its
arguments or could not do its work; 130 stopped by Ctrl-C. Commands import pyspark only when they
run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from checkpoint_store.interface_words import COMMAND, in_words_of
from cowstate.cli.adopt import add_adopt
from cowstate.cli.attach import add_attach
from cowstate.cli.compact import add_compact
from cowstate.cli.demo import add_demo
from cowstate.cli.jar import add_jar
from cowstate.cli.progress import add_progress
from cowstate.cli.rescale import add_rescale
from cowstate.cli.savepoint import add_restore, add_savepoint
from spark_state.errors import CowstateError

INTERRUPTED = 130


def argument_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="cowstate", description="Keyed state for Spark Structured Streaming."
    )
    parser.add_argument("--version", action="version", version=f"cowstate {version('cowstate')}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for add_command in (
        add_demo,
        add_jar,
        add_adopt,
        add_rescale,
        add_attach,
        add_compact,
        add_progress,
        add_savepoint,
        add_restore,
    ):
        add_command(commands)
    return parser


def _notes(error: BaseException) -> Sequence[str]:
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parsed = argument_parser().parse_args(arguments)
    try:
        with in_words_of(COMMAND):
            code: int = parsed.run(parsed)
    except CowstateError as error:
        print(f"cowstate: {error}", *_notes(error), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        # A command that leaves something wrong behind says so in the notes.
        told = "\n".join(_notes(interrupt)) or parsed.stopped
        print(f"cowstate: stopped; {told}", file=sys.stderr)
        return INTERRUPTED
    return code
