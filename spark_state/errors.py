"""Errors of the engine, named by what the caller can do about them.

    CowstateError
    ├── ConfigurationError          change the configuration or the call
    ├── UnsupportedOperationError   this release cannot do that; the message says what can
    ├── KeyGroupError               group by another key: this one has no stable hash
    ├── StateValueError             a processor put a value that its state's schema does not hold
    ├── OutputRowError              a processor emitted a row that is not of its output schema
    ├── BroadcastStateError         subtasks hold different broadcast states: repair the processor
    ├── StateMigrationError         the store holds this state under another schema or kind
    ├── CorruptStreamError          a channel breaks the order of its epochs: stop its second writer
    ├── MemoryLimitError            raise the limit, use RocksDB, or make batches smaller
    ├── BatchIdentityError          the task does not know its epoch: run it in the query's thread
    ├── FencedError                 a newer run, attempt or epoch took over (I9): nothing changed
    └── StateHostError              the resident process is gone or did not start: run it again

Errors of the object store are CheckpointStoreErrors, which are CowstateErrors, too.
"""

from __future__ import annotations

from checkpoint_store.errors import CowstateError as CowstateError


class ConfigurationError(CowstateError):
    """A configuration key or an argument is unknown, missing or out of range."""


class UnsupportedOperationError(CowstateError):
    """The operation belongs to Spark's interface but not to what this release runs."""


class KeyGroupError(CowstateError):
    """A grouping key has a type without a stable hash, so it belongs to no key group."""


class StateValueError(CowstateError):
    """A value does not fit the schema of the state it was put into."""


class OutputRowError(CowstateError):
    """An output row does not fit the operator's output schema."""


class BroadcastStateError(CowstateError):
    """Subtasks hold different entries in a broadcast state, which is to be the same in all."""


class StateMigrationError(CowstateError):
    """The restored schema of a state is incompatible with the registered one."""


class CorruptStreamError(CowstateError):
    """A channel delivered a barrier not newer than its last one, or went on after its end."""


class MemoryLimitError(CowstateError):
    """State takes more memory than spark.cowstate.maxMemoryMB lets it take."""


class BatchIdentityError(CowstateError):
    """The task carries no query id, run id or batch id."""


class FencedError(CowstateError):
    """The request is older than what the host has already seen (I9)."""


class StateHostError(CowstateError):
    """The state host could not be started, or died before it answered."""
