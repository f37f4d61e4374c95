"""Versions of a table, read for a clean-up that goes on past damaged versions."""

from __future__ import annotations

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableVersion


def version_or_damage(table: TableStore, number: int) -> TableVersion | CorruptObjectError | None:
    """A version, or its damage, logged once; None if the version is gone."""
    try:
        return table.read_version(number)
    except CorruptObjectError as error:
        tell_passed_over("version", error)
        return error
