"""Advice in messages of ConfigurationError and UnsupportedOperationError, checked in the sources.

A message is met through the interface that was called, so it names what a user of this interface
can choose. Modules that several interfaces call take such names from
`checkpoint_store.interface_words`. Errors of stores are tried with their values in
`tests/unit/checkpoint_store/test_errors.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_tidy import FILES, ROOT

ERRORS = {"ConfigurationError", "UnsupportedOperationError"}
COMMANDS = (
    "cowstate/",
    *(f"spark_state/spark/{room}/" for room in ("adoption", "rescaling", "stopped_query")),
)
READS = ("datasources/", "spark_state/spark/stored/")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# A line that a user can run says itself what its flags are of.
LINE_TO_RUN = re.compile(r"(?:cowstate|pip) [a-z]+[^.;:]*|start the server with --jars")
OPTION = re.compile(r"\b(?:stateVarName|operatorId|storeName|joinSide|batchId|versionAsOf)\b")
# With its package in front, a name says itself what it is of.
PYTHON = re.compile(r"(?<![\w.])(?:ProviderStore|open_store|read_state)\b|\b(?:state|epoch)=")


def text_of(node: ast.AST) -> str:
    """The text of a message; what is put into it is {}."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return f"{text_of(node.body)} {text_of(node.orelse)}"
    return "{}"


def messages() -> Iterator[tuple[str, int, str]]:
    """Path, line and text of each message."""
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("tests/", "scripts/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                yield name, node.lineno, " ".join(map(text_of, node.args))


def foreign_names(path: str, message: str) -> list[str]:
    """Names in a message of this module that users of its interface do not have."""
    names = []
    if not path.startswith(COMMANDS):
        names += FLAG.findall(LINE_TO_RUN.sub("", message))
    if not path.startswith(READS):
        names += OPTION.findall(message)
    if path.startswith((*COMMANDS, *READS)):
        names += PYTHON.findall(message)
    return names


def test_messages_name_what_users_of_the_called_interface_can_choose() -> None:
    foreign = {
        f"{path}:{line}": names
        for path, line, message in messages()
        if (names := foreign_names(path, message))
    }
    assert foreign == {}


@pytest.mark.parametrize(
    ("path", "message", "names"),
    [
        ("spark_state/savepoints/savepoint.py", "Pass --epoch", ["--epoch"]),
        ("spark_state/savepoints/savepoint.py", "run cowstate adopt {} --apply", []),
        ("spark_state/savepoints/savepoint.py", "leave stateVarName out", ["stateVarName"]),
        ("datasources/reads/table_source.py", "leave stateVarName out", []),
        ("datasources/reads/table_source.py", "pass state=None", ["state="]),
        ("cowstate/cli/savepoint.py", "call open_store", ["open_store"]),
        ("datasources/reads/asked_columns.py", "or use checkpoint_store.open_store", []),
    ],
)
def test_the_rule_tells_interfaces_apart(path: str, message: str, names: list[str]) -> None:
    assert foreign_names(path, message) == names
