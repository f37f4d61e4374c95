"""`cowstate rescale`: gives a stopped query another number of partitions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_session_options, positive_number

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_rescale(commands: Commands) -> None:
    """Add the command."""
    rescale = commands.add_parser(
        "rescale",
        help="give a stopped query on the provider another number of partitions",
        description="Shows which state of a query's checkpoint goes into how many partitions, and "
        "which files are edited; with --apply, does it. Stop the query first: rescale only sees "
        "whether files change, and does not notice a query that runs and waits for input.",
    )
    rescale.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    rescale.add_argument(
        "--partitions",
        type=positive_number,
        metavar="N",
        help="the number of shuffle partitions to go on with; not with --revert",
    )
    actions = rescale.add_mutually_exclusive_group()
    actions.add_argument("--apply", action="store_true", help="do it; otherwise nothing changes")
    actions.add_argument("--revert", action="store_true", help="undo the last --apply")
    rescale.add_argument(
        "--force", action="store_true", help="do not check whether the query is running"
    )
    add_session_options(rescale)
    rescale.set_defaults(run=_run, stopped="the checkpoint is as it was")


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.rescale_run import RescaleOptions, rescale_and_print

    options = RescaleOptions(
        checkpoint=arguments.checkpoint,
        partitions=arguments.partitions,
        apply=arguments.apply,
        revert=arguments.revert,
        force=arguments.force,
        master=arguments.master,
        settings=dict(arguments.conf),
        json_report=arguments.json,
    )
    rescale_and_print(options)
    return 0
