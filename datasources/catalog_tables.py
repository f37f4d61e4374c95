"""Tables of Spark's catalog, as the options of a read or write tell them. Pure.

Spark tells a source in Python nothing of what its catalog knows of a table. The jar that
`spark_state.configure` adds does: it hands on OPTIONS of CREATE TABLE, the location as option
`path`, and option `inCatalog`. Before a table is created or altered it asks with option
`declaration`, too; see table_declaration.
"""

from __future__ import annotations

from collections.abc import Mapping

IN_CATALOG = "incatalog"
DECLARATION = "declaration"
# What Spark says itself when such a table is created, and there is no jar between.
OF_CATALOG = frozenset({"owner", "provider", "location"})
NO_CATALOG = (
    "Spark tells a source in Python neither the path nor the options of a table of its catalog. "
    "They are known in a session that spark_state.configure built, or that has the jar (`cowstate "
    "jar`); without it, name the table by its path"
)


def are_of_catalog(options: Mapping[str, str]) -> bool:
    """Whether the table is one of Spark's catalog."""
    return _has(options, IN_CATALOG)


def is_declared(options: Mapping[str, str]) -> bool:
    """Whether the catalog asks before it creates or alters a table."""
    return are_of_catalog(options) and _has(options, DECLARATION)


def may_be_unwritten(options: Mapping[str, str]) -> bool:
    """Whether the table is made by its first write: CREATE TABLE says its keys. Any
    other table of the catalog that is missing is lost."""
    return are_of_catalog(options) and _has(options, "keys")


def _has(options: Mapping[str, str], option: str) -> bool:
    return option in (name.lower() for name in options)
