"""Completed checkpoints on an object store: what cowstate's engine and data source stand on.

Its errors are what a user meets. `completed_checkpoint_store` is the way in for the engine;
`docs/checkpoint_format.md` draws what it writes.
"""

from checkpoint_store.errors import (
    CheckpointStoreError,
    CorruptObjectError,
    EpochNotRetainedError,
    ObjectExistsError,
    ObjectMissingError,
    PartialEpochError,
    StoreAccessError,
    StoreMismatchError,
    StoreUnavailableError,
    UnreadableStateError,
    UnsupportedFormatError,
    VersionNotFoundError,
)

__all__ = [
    "CheckpointStoreError",
    "CorruptObjectError",
    "EpochNotRetainedError",
    "ObjectExistsError",
    "ObjectMissingError",
    "PartialEpochError",
    "StoreAccessError",
    "StoreMismatchError",
    "StoreUnavailableError",
    "UnreadableStateError",
    "UnsupportedFormatError",
    "VersionNotFoundError",
]
