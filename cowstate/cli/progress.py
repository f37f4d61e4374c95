"""`cowstate progress`: prints the progress of operators, epoch by epoch."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_storage_options, positive_number

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_progress(commands: Commands) -> None:
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
        type=positive_number,
        default=1,
        metavar="N",
        help="show the newest N epochs of each operator (default: 1)",
    )
    progress.add_argument("--subtasks", action="store_true", help="show each subtask, too")
    add_storage_options(progress, "the store")
    progress.add_argument("--json", action="store_true", help="print one JSON array")
    progress.set_defaults(run=_run, stopped="nothing was changed")


def _run(arguments: argparse.Namespace) -> int:
    from checkpoint_store.progress_reader import read_progress
    from cowstate.cli.progress_report import as_json, as_text

    progress = read_progress(
        arguments.store,
        arguments.storage_options,
        epochs=arguments.epochs,
        subtasks=arguments.subtasks,
    )
    print(as_json(progress) if arguments.json else as_text(progress))
    return 0
