"""Recognizes tables of Spark's catalog by the options of a read or write. Pure.

Spark tells a source in Python nothing about tables of its catalog. The jar of
`spark_state.configure` fills the gap: the jar passes the OPTIONS of CREATE TABLE, the location as
option `path`, and option `inCatalog`. Before Spark creates or alters a table, the jar passes option
`declaration`, too; see table_declaration.
"""

from __future__ import annotations

from collections.abc import Mapping

IN_CATALOG = "incatalog"
DECLARATION = "declaration"
# Options that Spark passes when a session without the jar creates a table in the catalog.
OF_CATALOG = frozenset({"owner", "provider", "location"})
NO_CATALOG = (
    "Spark tells a source in Python neither the path nor the options of a table of its catalog. "
    "They are known in a session that spark_state.configure built, or that has the jar (`cowstate "
    "jar`); without it, name the table by its path"
)


def are_of_catalog(options: Mapping[str, str]) -> bool:
    """True if the table is in Spark's catalog."""
    return _has(options, IN_CATALOG)


def is_declared(options: Mapping[str, str]) -> bool:
    """True if the jar asks for a check of the table, before Spark creates or alters the table in
    its catalog."""
    return are_of_catalog(options) and _has(options, DECLARATION)


def may_be_unwritten(options: Mapping[str, str]) -> bool:
    """True if a table of the catalog may have nothing in its store yet: CREATE TABLE named keys, so
    the first write creates the table in the store."""
    return are_of_catalog(options) and _has(options, "keys")


def _has(options: Mapping[str, str], option: str) -> bool:
    return option in (name.lower() for name in options)
