"""States on an object store: how cowstate's engine and data source keep and read states.

`open_store(url)` opens a reader for a table, for the state of a Python operator, or for the state
of a query on the state store provider. The reader gives any version as an Arrow table, without
Spark. `read_progress(url)` reads the progress of operators' epochs. The package exports the errors
that users may meet. `docs/checkpoint_format.md` draws the written bytes. Code that writes states
begins with the modules `completed_checkpoint_store` and `table_store`.
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
    NotAnOperatorError,
)
from checkpoint_store.provider.provider_errors import (
    ChangesNotKnownError,
    NotACheckpointError,
    StateChoiceError,
    StoreNotFoundError,
    UnreadableStateError,
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
    """Return all names for tab completion, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
