"""Runs `cowstate savepoint`, which copies the state of operators to a separate place, and `cowstate
restore`, which writes the operators' stores from such a copy."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict

from spark_state.savepoints.savepoint import Savepoint, restore, savepoint


def savepoint_and_print(arguments: Namespace) -> None:
    """Run `cowstate savepoint`. Raises the errors of `savepoint`."""
    options = arguments.storage_options
    written = savepoint(
        arguments.store, arguments.target, epoch=arguments.epoch, storage_options=options
    )
    _print(
        arguments,
        written,
        lambda each: f"{each.url} has epoch {each.epoch} of {each.source}: {_amounts(each)}",
    )


def restore_and_print(arguments: Namespace) -> None:
    """Run `cowstate restore`. Raises the errors of `restore`."""
    options = arguments.storage_options
    written = restore(arguments.savepoint, arguments.store, storage_options=options)
    _print(
        arguments,
        written,
        lambda each: (
            f"{each.url} goes on from epoch {each.epoch}: {_amounts(each)}. The last "
            f"batch of the query's checkpoint must be {each.epoch}"
        ),
    )


def _amounts(written: Savepoint) -> str:
    return f"{written.entries:,} entries, {written.bytes:,} bytes, {written.subtasks} subtasks"


def _print(
    arguments: Namespace, written: Sequence[Savepoint], line: Callable[[Savepoint], str]
) -> None:
    if arguments.json:
        print(json.dumps([asdict(each) for each in written], indent=2))
    else:
        print(*map(line, written), sep="\n")
