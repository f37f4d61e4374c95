"""Parses the texts of options, and adds the options that several commands have."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any


def setting(text: str) -> tuple[str, str]:
    """Parse the key and the value in the text of an option. Raises ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def json_object(text: str) -> dict[str, Any]:
    """Parse the JSON object in the text of an option. Raises ArgumentTypeError; the message does
    not show the text, which may hold credentials."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('not a JSON object such as {"anon": true}')
    return value


def whole_number(least: int) -> Callable[[str], int]:
    """Return a function that reads an option's text as a whole number. The function raises
    ArgumentTypeError if the text is not a whole number, or if the number is less than `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
        return int(text)

    return parse


def add_stopped_query_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that changes the checkpoint of a stopped query."""
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    actions = command.add_mutually_exclusive_group()
    actions.add_argument("--apply", action="store_true", help="do it; otherwise nothing changes")
    actions.add_argument("--revert", action="store_true", help="undo the last --apply")
    command.add_argument(
        "--force",
        action="store_true",
        help="the query is certainly stopped",
    )
    add_session_options(command)
    command.set_defaults(stopped="the checkpoint is as it was")


def add_storage_options(command: argparse.ArgumentParser, places: str) -> None:
    """Add `--storage-options`, the options for fsspec. `places`: words of the help text for the
    locations that the command opens with fsspec, such as "the table"."""
    command.add_argument(
        "--storage-options",
        type=json_object,
        default={},
        metavar="JSON",
        help=f"options for fsspec to reach {places}, as a JSON object",
    )


def add_session_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs in a Spark session and prints a report."""
    command.add_argument("--master", default="local[*]", help="Spark master (default: local[*])")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a setting of the Spark session, for example of the file system; repeatable",
    )
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
