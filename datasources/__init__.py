"""State as a table: Spark's data source "cowstate", a keyed upsert sink with readers.

Spark finds the format where cowstate is installed. In a session that does not find the format, call
`spark.dataSource.register(CowStateDataSource)`. Reads and writes raise the errors of this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datasources.errors import (
    DuplicateKeyError,
    EpochsTakenBackError,
    InputRowError,
    NullKeyError,
    NullSequenceError,
    StateReplacedError,
)

if TYPE_CHECKING:
    from datasources.cowstate_source import CowStateDataSource
    from datasources.streams.lost_changes import ChangesLostError

# Names imported on first use, because their modules need libraries that Spark does not import.
_MODULES = {"ChangesLostError": "streams.lost_changes", "CowStateDataSource": "cowstate_source"}

__all__ = [
    "ChangesLostError",
    "CowStateDataSource",
    "DuplicateKeyError",
    "EpochsTakenBackError",
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
    """All names for tab completion, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
