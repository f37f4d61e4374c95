"""States on an object store: how cowstate's engine and data source keep and read them.

`open_store(url)` reads a table, the state of a Python operator, or that of a query on the state
store provider, at any of its versions, as Arrow tables and without Spark.
`read_progress(url)` reads what the epochs of operators did. The errors are what a
user meets. `docs/checkpoint_format.md` draws what is written; `completed_checkpoint_store` and
`table_store` are the ways in for writers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from checkpoint_store.errors import (
    CheckpointStoreError,
    ConflictingWriterError,
    CorruptObjectError,
    EpochNotRetainedError,
    LostFilesError,
    LostVersionError,
    NotAStoreError,
    NotATableError,
    ObjectExistsError,
    ObjectMissingError,
    PartialEpochError,
    StateNotFoundError,
    StoreAccessError,
    StoreMismatchError,
    StoreUnavailableError,
    TableMismatchError,
    TableSchemaError,
    TimestampOutOfRangeError,
    UncertainCommitError,
    UnknownColumnError,
    UnsupportedFormatError,
    VersionMissingError,
    VersionNotRetainedError,
    WrittenTwiceError,
)
from checkpoint_store.operators.operator_errors import (
    NoOperatorStoreError,
    NoProgressError,
    NoSavepointError,
    NotAnOperatorError,
)
from checkpoint_store.provider.provider_errors import (
    ChangesNotKnownError,
    NotACheckpointError,
    StateChoiceError,
    StoreNotFoundError,
    UnreadableStateError,
    VersionNotFoundError,
)
from checkpoint_store.provider.provider_store import ProviderStore

if TYPE_CHECKING:
    from checkpoint_store.operators.operator_progress import (
        EpochNumbers,
        OperatorProgress,
        SubtaskProgress,
    )
    from checkpoint_store.progress_reader import read_progress
    from checkpoint_store.state_reader import StateReader, open_store

__all__ = [
    "ChangesNotKnownError",
    "CheckpointStoreError",
    "ConflictingWriterError",
    "CorruptObjectError",
    "EpochNotRetainedError",
    "EpochNumbers",
    "LostFilesError",
    "LostVersionError",
    "NoOperatorStoreError",
    "NoProgressError",
    "NoSavepointError",
    "NotACheckpointError",
    "NotAStoreError",
    "NotATableError",
    "NotAnOperatorError",
    "ObjectExistsError",
    "ObjectMissingError",
    "OperatorProgress",
    "PartialEpochError",
    "ProviderStore",
    "StateChoiceError",
    "StateNotFoundError",
    "StateReader",
    "StoreAccessError",
    "StoreMismatchError",
    "StoreNotFoundError",
    "StoreUnavailableError",
    "SubtaskProgress",
    "TableMismatchError",
    "TableSchemaError",
    "TimestampOutOfRangeError",
    "UncertainCommitError",
    "UnknownColumnError",
    "UnreadableStateError",
    "UnsupportedFormatError",
    "VersionMissingError",
    "VersionNotFoundError",
    "VersionNotRetainedError",
    "WrittenTwiceError",
    "open_store",
    "read_progress",
]

_LATER = {
    "EpochNumbers": "checkpoint_store.operators.operator_progress",
    "OperatorProgress": "checkpoint_store.operators.operator_progress",
    "StateReader": "checkpoint_store.state_reader",
    "SubtaskProgress": "checkpoint_store.operators.operator_progress",
    "open_store": "checkpoint_store.state_reader",
    "read_progress": "checkpoint_store.progress_reader",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also those that are not imported yet: what tab completion offers."""
    return sorted({*globals(), *__all__})
