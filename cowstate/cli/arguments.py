"""What texts of options mean, and the options that several commands have."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


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


def add_session_options(command: argparse.ArgumentParser) -> None:
    """Those of a command that runs in a Spark session and reports."""
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
