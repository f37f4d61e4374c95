"""Advice in messages of ConfigurationError and UnsupportedOperationError, checked in the sources.

A user meets a message through one interface. The message names only options, flags and functions of
this interface. Modules that several interfaces call take the names from
`checkpoint_store.interface_words`. `tests/unit/checkpoint_store/test_errors.py` tests the errors of
stores with their values.
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
# A command line that a user can run says itself which program its flags belong to.
LINE_TO_RUN = re.compile(r"(?:cowstate|pip) [a-z]+[^.;:]*|start the server with --jars")
OPTION = re.compile(r"\b(?:stateVarName|operatorId|storeName|joinSide|batchId|versionAsOf)\b")
# A name with its package in front says itself where it comes from.
PYTHON = re.compile(r"(?<![\w.])(?:ProviderStore|open_store|read_state)\b|\b(?:state|epoch)=")


def text_of(node: ast.AST) -> str:
    """The text of a message, with {} in place of each inserted value."""
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
    """Yield path, line and text of each message."""
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("tests/", "scripts/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                yield name, node.lineno, " ".join(map(text_of, node.args))


def foreign_names(path: str, message: str) -> list[str]:
    """Names in a message of the module `path` that users of the module's interface do not have."""
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
