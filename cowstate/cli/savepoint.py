"""`cowstate savepoint` and `cowstate restore`: the state of operators in a separate place."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from cowstate.cli.arguments import add_storage_options, natural_number

if TYPE_CHECKING:
    from cowstate.cli.arguments import Commands
    from spark_state.savepoints.savepoint import Savepoint


def add_savepoint(commands: Commands) -> None:
    savepoint = commands.add_parser(
        "savepoint",
        help="write all that a query's operators have to a place of its own",
        description="Writes the state of Python operators after an epoch as a store of its own, "
        "which needs no other file and can be copied anywhere. The query may run or not; no Spark "
        "is started.",
    )
    savepoint.add_argument(
        "store",
        metavar="STORE",
        help="the store of an operator, or the directory of its query: <store>/<query id>",
    )
    savepoint.add_argument("target", metavar="TARGET", help="a place where nothing is yet")
    savepoint.add_argument(
        "--epoch",
        type=natural_number,
        metavar="N",
        help="the epoch whose state it is (default: the newest that all operators have)",
    )
    _add_options(savepoint)
    savepoint.set_defaults(run=_run_savepoint, stopped="the savepoint is not complete: delete it")


def add_restore(commands: Commands) -> None:
    restore = commands.add_parser(
        "restore",
        help="make the store of a query's operators from a savepoint",
        description="Writes the store that a query goes on from. Its checkpoint must have the "
        "savepoint's epoch as its last batch. A query of another id begins with a savepoint by "
        "spark.cowstate.restoreFrom instead.",
    )
    restore.add_argument("savepoint", metavar="SAVEPOINT", help="what `cowstate savepoint` wrote")
    restore.add_argument(
        "store",
        metavar="STORE",
        help="<spark.cowstate.store>/<query id>/<operator>, or <spark.cowstate.store>/<query id> "
        "for all operators; without epochs",
    )
    _add_options(restore)
    restore.set_defaults(run=_run_restore, stopped="the store is not complete: delete it")


def _add_options(command: argparse.ArgumentParser) -> None:
    add_storage_options(command, "both places")
    command.add_argument("--json", action="store_true", help="print one JSON array")


def _run_savepoint(arguments: argparse.Namespace) -> int:
    from spark_state.savepoints.savepoint import savepoint

    written = savepoint(
        arguments.store,
        arguments.target,
        epoch=arguments.epoch,
        storage_options=arguments.storage_options,
    )
    _print(
        written,
        lambda each: f"{each.url} has epoch {each.epoch} of {each.source}: {_amounts(each)}",
        as_json=arguments.json,
    )
    return 0


def _run_restore(arguments: argparse.Namespace) -> int:
    from spark_state.savepoints.savepoint import restore

    written = restore(
        arguments.savepoint, arguments.store, storage_options=arguments.storage_options
    )
    _print(
        written,
        lambda each: (
            f"{each.url} goes on from epoch {each.epoch}: {_amounts(each)}. The last "
            f"batch of the query's checkpoint must be {each.epoch}"
        ),
        as_json=arguments.json,
    )
    return 0


def _amounts(written: Savepoint) -> str:
    return f"{written.entries:,} entries, {written.bytes:,} bytes, {written.subtasks} subtasks"


def _print(
    written: Sequence[Savepoint], line: Callable[[Savepoint], str], *, as_json: bool
) -> None:
    if as_json:
        print(json.dumps([asdict(each) for each in written], indent=2))
    else:
        print(*map(line, written), sep="\n")
