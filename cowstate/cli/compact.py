"""`cowstate compact`: folds the files of a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_session_options, add_storage_options, positive_number

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_compact(commands: Commands) -> None:
    compact = commands.add_parser(
        "compact",
        help="fold the files of a table, so that it is read faster",
        description="Runs a Spark job that folds the files of a table's newest version. Queries "
        "may go on writing and reading the table; older versions stay readable.",
    )
    compact.add_argument("table", metavar="URL", help="the table")
    compact.add_argument(
        "--parts",
        type=positive_number,
        metavar="N",
        help="make N files, each of a range of key groups (default: one for each 64 MiB)",
    )
    add_storage_options(compact, "the table")
    add_session_options(compact)
    compact.set_defaults(run=_run, stopped="the table is as it was")


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.compaction_run import compact_and_print

    compact_and_print(arguments)
    return 0
