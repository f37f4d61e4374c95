"""Errors of the engine, named by the action that the caller can take.

    CowstateError
    ├── ConfigurationError          change the configuration or the call
    ├── UnsupportedOperationError   this release cannot run the call; the message says what works
    ├── KeyGroupError               group by another key: the key has no stable hash
    ├── StateValueError             a processor put a value that the state's schema does not hold
    ├── OutputRowError              a processor emitted a row that does not fit the output schema
    ├── BroadcastStateError         subtasks hold different broadcast states: repair the processor
    ├── StateMigrationError         the store holds the state under another schema or kind
    ├── CorruptStreamError          a channel breaks the order of its epochs: stop the second writer
    ├── MemoryLimitError            raise the limit, use RocksDB, or make batches smaller
    ├── BatchIdentityError          the task does not know its epoch: run it in the query's thread
    ├── FencedError                 a newer run, attempt or epoch took over (I9): nothing changed
    └── StateHostError              a state host is gone or did not start: run the query again

Errors of the object store are CheckpointStoreErrors. A CheckpointStoreError is a CowstateError,
too.
"""

from __future__ import annotations

from checkpoint_store.errors import CowstateError as CowstateError


class ConfigurationError(CowstateError):
    """A configuration key or an argument is unknown, missing or out of range."""


class UnsupportedOperationError(CowstateError):
    """The operation belongs to Spark's interface, but this release cannot run the operation."""


class KeyGroupError(CowstateError):
    """A grouping key has a type without a stable hash, so the key belongs to no key group."""


class StateValueError(CowstateError):
    """A value does not fit the schema of the state."""


class OutputRowError(CowstateError):
    """An output row does not fit the operator's output schema."""


class BroadcastStateError(CowstateError):
    """Subtasks hold different entries in a broadcast state, which must be the same in all
    subtasks."""


class StateMigrationError(CowstateError):
    """The restored schema of a state is incompatible with the registered schema."""


class CorruptStreamError(CowstateError):
    """A channel delivered a barrier not newer than its last barrier, or an event after its end."""


class MemoryLimitError(CowstateError):
    """State takes more memory than spark.cowstate.maxMemoryMB allows."""


class BatchIdentityError(CowstateError):
    """The task carries no query id, run id or batch id."""


class FencedError(CowstateError):
    """The request is older than a request that the host has already seen (I9)."""


class StateHostError(CowstateError):
    """The state host did not start, or died before an answer."""
