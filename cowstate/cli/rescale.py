"""`cowstate rescale`: gives a stopped query another number of partitions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_stopped_query_options, positive_number

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_rescale(commands: Commands) -> None:
    rescale = commands.add_parser(
        "rescale",
        help="give a stopped query on the provider another number of partitions",
        description="Shows which state of a query's checkpoint goes into how many partitions, and "
        "which files are edited; with --apply, does it. Stop the query first: rescale only sees "
        "whether files change, and does not notice a query that runs and waits for input.",
    )
    rescale.add_argument(
        "--partitions",
        type=positive_number,
        metavar="N",
        help="the number of shuffle partitions to go on with; not with --revert",
    )
    add_stopped_query_options(rescale)
    rescale.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from cowstate.cli.rescale_run import rescale_and_print
    from cowstate.cli.stopped_query_run import StoppedQueryOptions

    rescale_and_print(StoppedQueryOptions.of(arguments), arguments.partitions)
    return 0
