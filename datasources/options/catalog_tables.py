"""Recognizes tables of Spark's catalog by the options of a read or write. Pure.

Spark does not tell a source in Python what its catalog knows about a table. The jar that
`spark_state.configure` adds tells it: the jar passes the OPTIONS of CREATE TABLE, the location as
option `path`, and option `inCatalog`. Before Spark creates or alters a table, the jar asks with
option `declaration`, too; see table_declaration.
"""

from __future__ import annotations

from collections.abc import Mapping

IN_CATALOG = "incatalog"
DECLARATION = "declaration"
# Options that Spark itself passes when such a table is created in a session without the jar.
OF_CATALOG = frozenset({"owner", "provider", "location"})
NO_CATALOG = (
    "Spark tells a source in Python neither the path nor the options of a table of its catalog. "
    "They are known in a session that spark_state.configure built, or that has the jar (`cowstate "
    "jar`); without it, name the table by its path"
)


def are_of_catalog(options: Mapping[str, str]) -> bool:
    """Whether the table is in Spark's catalog."""
    return _has(options, IN_CATALOG)


def is_declared(options: Mapping[str, str]) -> bool:
    """Whether the catalog asks before it creates or alters a table."""
    return are_of_catalog(options) and _has(options, DECLARATION)


def may_be_unwritten(options: Mapping[str, str]) -> bool:
    """Whether the table's first write creates it, because CREATE TABLE named its keys.

    Any other table of the catalog that does not exist is lost.
    """
    return are_of_catalog(options) and _has(options, "keys")


def _has(options: Mapping[str, str], option: str) -> bool:
    return option in (name.lower() for name in options)
