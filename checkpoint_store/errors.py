"""Errors of the checkpoint store, named by what the caller can do about them.

    CheckpointStoreError
    ├── ObjectMissingError      an object that was named is gone: restore it, or go back in time
    ├── CorruptObjectError      an object's bytes are not what was written: the same
    ├── ObjectExistsError       a create found its name taken; nothing was changed
    ├── StoreUnavailableError   the store failed for longer than we retry: try again later
    ├── StoreAccessError        the store cannot be reached this way: change URL or permissions
    ├── PartialEpochError       some subtasks of an epoch never published a barrier (I5)
    ├── EpochNotRetainedError   the epoch to start from has been deleted by retention
    ├── StoreMismatchError      the store belongs to another operator or configuration
    ├── UnsupportedFormatError  a newer release wrote this: upgrade
    ├── VersionNotFoundError    the provider has no state of a version: ask for another one
    └── UnreadableStateError    state of the provider that only Spark can read: read it there

Every error keeps its values as attributes and survives pickling: errors cross processes.
"""

from __future__ import annotations

_GO_BACK = (
    "restore it from a backup of the store, or restart the query from a Spark checkpoint of an "
    "earlier epoch"
)


class CheckpointStoreError(Exception):
    """Base of every error that the checkpoint store raises on purpose."""


class ObjectMissingError(CheckpointStoreError):
    """An object that something names is not in the store."""

    def __init__(self, url: str, name: str, epoch: int | None = None) -> None:
        super().__init__(url, name, epoch)
        self.url = url
        self.name = name
        self.epoch = epoch

    def __str__(self) -> str:
        return f"{self.name}{_of_epoch(self.epoch)} is missing from {self.url}: {_GO_BACK}"


class CorruptObjectError(CheckpointStoreError):
    """An object's length, checksum or content is not what was written."""

    def __init__(self, url: str, name: str, problem: str, epoch: int | None = None) -> None:
        super().__init__(url, name, problem, epoch)
        self.url = url
        self.name = name
        self.problem = problem
        self.epoch = epoch

    def __str__(self) -> str:
        where = f"{self.name}{_of_epoch(self.epoch)} in {self.url}"
        return f"{where} is damaged ({self.problem}): {_GO_BACK}"


class ObjectExistsError(CheckpointStoreError):
    """An object of this name is already there; it was not changed (I1)."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.url = url
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} exists already in {self.url} and was not changed"


class StoreUnavailableError(CheckpointStoreError):
    """The store kept failing; what was tried last is the error's cause."""

    def __init__(self, url: str, operation: str, attempts: int, problem: str) -> None:
        super().__init__(url, operation, attempts, problem)
        self.url = url
        self.operation = operation
        self.attempts = attempts
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.url} is unavailable: {self.operation} failed {self.attempts} times, last with "
            f"{self.problem}. Nothing that was published is lost; restart the query when the store "
            "is back"
        )


class StoreAccessError(CheckpointStoreError):
    """The store cannot be used as configured; trying again changes nothing."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(url, problem)
        self.url = url
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"cannot use the store {self.url}: {self.problem}. Make it usable for the user that "
            "runs Spark, or name another store"
        )


class PartialEpochError(CheckpointStoreError):
    """An epoch has barriers of some subtasks only, so it is never built upon (I5)."""

    def __init__(
        self, url: str, epoch: int, present: tuple[int, ...], missing: tuple[int, ...]
    ) -> None:
        super().__init__(url, epoch, present, missing)
        self.url = url
        self.epoch = epoch
        self.present = present
        self.missing = missing

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is incomplete in {self.url}: subtasks {_few(self.present)} "
            f"published it, subtasks {_few(self.missing)} did not. An action that runs only some "
            "partitions (take, limit, isEmpty in foreachBatch) loses the rows of the others: run "
            "an action over all of them (persist and count first). Then let the epoch run again: "
            f"delete commits/{self.epoch} and all later files in commits/ and offsets/ of the "
            "query's Spark checkpoint (with their .crc files), and start the query"
        )


class EpochNotRetainedError(CheckpointStoreError):
    """What an epoch would start from existed once and has been deleted by retention."""

    def __init__(self, url: str, epoch: int, oldest: int) -> None:
        super().__init__(url, epoch, oldest)
        self.url = url
        self.epoch = epoch
        self.oldest = oldest

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} starts from an epoch that {self.url} no longer holds: the oldest "
            f"it holds is {self.oldest}. Restart the query from a Spark checkpoint whose next "
            f"epoch is {self.oldest + 1} or later, and raise minEpochsToRetain to keep more"
        )


class StoreMismatchError(CheckpointStoreError):
    """The store was created for something else than what opens it."""

    def __init__(self, url: str, field: str, stored: str, expected: str) -> None:
        super().__init__(url, field, stored, expected)
        self.url = url
        self.field = field
        self.stored = stored
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"{self.url} was created with {self.field} {self.stored}, not {self.expected}: "
            f"go back to {self.stored}, or give this operator a new store (another name, or a new "
            "Spark checkpoint location)"
        )


class UnsupportedFormatError(CheckpointStoreError):
    """An object has a format version that this release does not know."""

    def __init__(self, url: str, name: str, version: int, supported: int) -> None:
        super().__init__(url, name, version, supported)
        self.url = url
        self.name = name
        self.version = version
        self.supported = supported

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} has format version {self.version}; this release of "
            f"cowstate reads up to {self.supported}: upgrade cowstate"
        )


class VersionNotFoundError(CheckpointStoreError):
    """A store of the provider has no files of a version, or of no version at all."""

    def __init__(
        self, url: str, directory: str, version: int, present: tuple[int, ...] = ()
    ) -> None:
        super().__init__(url, directory, version, present)
        self.url = url
        self.directory = directory
        self.version = version
        self.present = present

    def __str__(self) -> str:
        there = f"it has {self.present[0]} to {self.present[-1]}" if self.present else "it has none"
        return (
            f"{self.directory} in {self.url} has no state of version {self.version} (batch "
            f"{self.version - 1}); {there}. Ask for a version that is there, or check the operator "
            "and the store's name. spark.sql.streaming.minBatchesToRetain says how many are kept"
        )


class UnreadableStateError(CheckpointStoreError):
    """A file of the provider, or one below it, holds what is not decoded without Spark."""

    def __init__(self, url: str, name: str, problem: str) -> None:
        super().__init__(url, name, problem)
        self.url = url
        self.name = name
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} cannot be read without Spark: {self.problem}. Read this "
            'state with spark.read.format("statestore")'
        )


def _of_epoch(epoch: int | None) -> str:
    return "" if epoch is None else f" of epoch {epoch}"


def _few(subtasks: tuple[int, ...]) -> str:
    shown = ", ".join(str(subtask) for subtask in subtasks[:10])
    return shown if len(subtasks) <= 10 else f"{shown} and {len(subtasks) - 10} more"
