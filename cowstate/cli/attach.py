"""`cowstate attach`: lets a query go on with its stores from the checkpoint in the argument."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_session_options

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_attach(commands: Commands) -> None:
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
        run=_run,
        stopped="with --apply, some operators may be attached: run the command again, it goes on "
        "with the rest",
    )


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.attach_run import attach_and_print

    attach_and_print(arguments)
    return 0
