"""`cowstate adopt`: lets a stopped query go on with its state on another provider."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_stopped_query_options

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_adopt(commands: Commands) -> None:
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
    adopt.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.adoption_run import adopt_and_print
    from cowstate.cli.stopped_query_run import StoppedQueryOptions

    adopt_and_print(StoppedQueryOptions.of(arguments), arguments.to, arguments.store)
    return 0
