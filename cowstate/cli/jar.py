"""`cowstate jar`: prints the path of the provider's jar."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands


def add_jar(commands: Commands) -> None:
    jar = commands.add_parser(
        "jar",
        help="print the path of the state store provider's jar",
        description="Prints the path of the jar; with --options, all options for spark-submit.",
    )
    jar.add_argument(
        "--options", action="store_true", help="print the options for spark-submit instead"
    )
    jar.set_defaults(run=_run, stopped="nothing was changed")


def _run(arguments: argparse.Namespace) -> int:
    from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
    from spark_state.spark.provider.session_configuration import jar_path

    jar = jar_path()
    print(f"--jars {jar} --conf {PROVIDER_KEY}={PROVIDER_CLASS}" if arguments.options else jar)
    return 0
