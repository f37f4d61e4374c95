"""State as a table: Spark's data source "cowstate", a keyed upsert sink with readers.

Spark finds the format where cowstate is installed; `spark.dataSource.register(CowStateDataSource)`
makes it known to a session that does not. The errors are what rows that cannot be written raise.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datasources.errors import (
    DuplicateKeyError,
    InputRowError,
    NullKeyError,
    NullSequenceError,
    StateReplacedError,
)

if TYPE_CHECKING:
    from datasources.cowstate_source import CowStateDataSource
    from datasources.lost_changes import ChangesLostError

# Imported when they are asked for: they need libraries that Spark does not import anyway.
_MODULES = {"ChangesLostError": "lost_changes", "CowStateDataSource": "cowstate_source"}

__all__ = [
    "ChangesLostError",
    "CowStateDataSource",
    "DuplicateKeyError",
    "InputRowError",
    "NullKeyError",
    "NullSequenceError",
    "StateReplacedError",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"datasources.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also those that are not imported yet: what tab completion offers."""
    return sorted({*globals(), *__all__})
