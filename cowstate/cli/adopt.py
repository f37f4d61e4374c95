"""`cowstate adopt`: lets a stopped query go on with its state on another provider."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_session_options

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_adopt(commands: Commands) -> None:
    """Add the command."""
    adopt = commands.add_parser(
        "adopt",
        help="let a stopped query go on with its state on cowstate, or back",
        description="Shows what a query's checkpoint holds, and the steps to continue it on "
        "cowstate; with --apply, takes these steps. Stop the query first: adopt only sees whether "
        "files change, and does not notice a query that runs and waits for input.",
    )
    adopt.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
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
    actions = adopt.add_mutually_exclusive_group()
    actions.add_argument("--apply", action="store_true", help="do it; otherwise nothing changes")
    actions.add_argument("--revert", action="store_true", help="undo the last --apply")
    adopt.add_argument(
        "--force", action="store_true", help="do not check whether the query is running"
    )
    add_session_options(adopt)
    adopt.set_defaults(run=_run, stopped="the checkpoint is as it was")


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.adoption_run import AdoptOptions, adopt_and_print

    options = AdoptOptions(
        checkpoint=arguments.checkpoint,
        to=arguments.to,
        store=arguments.store,
        apply=arguments.apply,
        revert=arguments.revert,
        force=arguments.force,
        master=arguments.master,
        settings=dict(arguments.conf),
        json_report=arguments.json,
    )
    adopt_and_print(options)
    return 0
