"""Errors of the checkpoint store. The tree says what the caller can do after each error.

    CheckpointStoreError
    ├── ObjectMissingError      a named object is gone: restore the object, or go back in time
    ├── CorruptObjectError      an object is damaged: restore the object, or go back in time
    ├── ObjectExistsError       the name of a new object is taken; nothing was changed
    ├── StoreUnavailableError   the store failed for longer than we retry: try again later
    ├── StoreAccessError        the store cannot be used as configured: change URL or permissions
    ├── PartialEpochError       some subtasks of an epoch never published a barrier (I5)
    ├── EpochNotRetainedError   retention has deleted the epoch to start from
    ├── ConflictingWriterError  another query writes the table: stop one query, or take over
    ├── LostFilesError          files of a batch are gone before its commit: write the batch again
    ├── LostVersionError        a version with batches of a query is gone: restore the version
    ├── NotAStoreError          a URL has no state: name another URL
    ├── StateNotFoundError      an operator lacks a state, or has several: name a state
    ├── TableSchemaError        rows do not fit the table's columns: change rows or table
    ├── UncertainCommitError    a commit waited too long: check if the table has its rows
    ├── WrittenTwiceError       one batch is written into a table twice: join the rows
    ├── NotATableError          something else is in the table's place: name another place
    ├── StoreMismatchError      the store belongs to another operator or configuration
    │   └── TableMismatchError  the table was created with another option
    ├── UnsupportedFormatError  a newer release wrote the object: upgrade
    ├── VersionNotRetainedError  a table or an operator's store lacks a version: ask for another
    │   └── VersionMissingError    earlier and later versions exist: restore the version
    ├── TimestampOutOfRangeError  no version is known for a time: ask for another time
    └── UnknownColumnError      a state has no column of a name: ask for a column of the state

`provider_errors` has the errors of reading the provider's files, `operator_errors` the errors for a
URL without operators, `run_errors` the errors about runs in conflict. Every error that cowstate
raises on purpose is a CowstateError.

Every error keeps its values as attributes and survives pickling: errors cross processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from checkpoint_store.amounts import moment_text
from checkpoint_store.damage_advice import HOW_TO_GO_BACK, advice_on
from checkpoint_store.interface_words import words
from checkpoint_store.object_names import is_of_checkpoint, is_of_table
from checkpoint_store.schema_text import schema_texts

_HOW_TO_KEEP_MORE = (
    "To keep more versions from now on, raise minVersionsToRetain of the table's writer, "
    "spark.cowstate.minEpochsToRetain of the operator's query, or "
    "spark.sql.streaming.minBatchesToRetain of the query on the provider"
)


class CowstateError(Exception):
    """Base of every error that cowstate raises on purpose.

    An error with values is a dataclass of the values, but compares and hashes like any exception.
    `words`: advice in the terms of the interface that the user called, see interface_words.
    """

    def __post_init__(self) -> None:
        # Pickle and copy rebuild an exception from its args, which lack values given by keyword.
        self.args = (*vars(self).values(),)
        self.words = words()


class CheckpointStoreError(CowstateError):
    """Base of every error that the checkpoint store raises on purpose."""


@dataclass(eq=False)
class ObjectMissingError(CheckpointStoreError):
    """A named object is not in the store."""

    url: str
    name: str
    epoch: int | None = None

    def __str__(self) -> str:
        subject = f"{self.name}{_of_epoch(self.name, self.epoch)}"
        return f"{subject} is missing from {self.url}: {advice_on(self.name, self.epoch)}"


@dataclass(eq=False)
class CorruptObjectError(CheckpointStoreError):
    """An object's length, checksum or content differs from the written object."""

    url: str
    name: str
    problem: str
    epoch: int | None = None

    def __str__(self) -> str:
        where = f"{self.name}{_of_epoch(self.name, self.epoch)} in {self.url}"
        return f"{where} is damaged ({self.problem}): {advice_on(self.name, self.epoch)}"


@dataclass(eq=False)
class ObjectExistsError(CheckpointStoreError):
    """The name of a new object is taken. The existing object was not changed (I1)."""

    url: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} exists already in {self.url} and was not changed"


@dataclass(eq=False)
class StoreUnavailableError(CheckpointStoreError):
    """The call `operation` to the store kept failing for `seconds`. `problem`: the last failure."""

    url: str
    operation: str
    seconds: float
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.url} is unavailable: {self.operation} failed for {self.seconds:.0f} s, last "
            f"with {self.problem.rstrip('. ')}. Nothing that was published is lost; restart the "
            "query when the store is back. storeRetrySeconds says how long an outage may last"
        )


@dataclass(eq=False)
class StoreAccessError(CheckpointStoreError):
    """The store cannot be used as configured; trying again changes nothing."""

    url: str
    problem: str

    def __str__(self) -> str:
        return (
            f"cannot use the store {self.url}: {self.problem.rstrip('. ')}. Make it usable for "
            "the user that runs Spark, or name another store"
        )


@dataclass(eq=False)
class PartialEpochError(CheckpointStoreError):
    """An epoch has the barriers of only some subtasks, so no epoch may build upon this epoch (I5).
    `present`, `missing`: the subtasks with and without a barrier."""

    url: str
    epoch: int
    present: tuple[int, ...]
    missing: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is incomplete in {self.url}: subtasks {_few(self.present)} "
            f"published it, subtasks {_few(self.missing)} did not. A foreachBatch function that "
            "cowstate does not see (one that was not set in Python) ran an action over some "
            "partitions only (take, limit, isEmpty), and Spark committed the batch: run an action "
            "over all of them (persist and count first). Then let the epoch run again: "
            f"delete commits/{self.epoch} and all later files in commits/ and offsets/ of the "
            "query's Spark checkpoint (with their .crc files), and start the query"
        )


@dataclass(eq=False)
class EpochNotRetainedError(CheckpointStoreError):
    """Retention has deleted the epoch from which `epoch` would start."""

    url: str
    epoch: int
    oldest: int

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} starts from an epoch that {self.url} no longer holds: the oldest "
            f"it holds is {self.oldest}. Restart the query from a Spark checkpoint whose next "
            f"epoch is {self.oldest + 1} or later, and raise minEpochsToRetain to keep more"
        )


@dataclass(eq=False)
class ConflictingWriterError(CheckpointStoreError):
    """A table belongs to the writer `owner`, and `writer` tries to write into the table."""

    url: str
    owner: str
    writer: str

    def __str__(self) -> str:
        return (
            f"{self.url} is written by {self.owner}; {self.writer} cannot write it, too. Stop one "
            "of them, or write into another table. If the former writer is gone for good, write "
            'with option("takeOver", "true") once: the table then belongs to the new one'
        )


@dataclass(eq=False)
class LostFilesError(CheckpointStoreError):
    """`count` files that `writer` wrote are gone, and no version names the files yet. `name`: the
    first of the files."""

    url: str
    name: str
    writer: str
    count: int

    def __str__(self) -> str:
        others = f" and {self.count - 1} other files" if self.count > 1 else ""
        return (
            f"{self.name}{others} of {self.url} are gone, and {self.writer} has not committed them "
            "yet: files that no version names are deleted when nothing is written beside them for "
            "orphanGraceSeconds. The table is as it was. Raise the option in all writers of the "
            "table, and write the rows again"
        )


@dataclass(eq=False)
class LostVersionError(CheckpointStoreError):
    """A version of a table is gone, and the version held batches of a query. `name`: the version's
    object; `batch`: the batch that the query writes now; `newest`: the query's last batch in the
    table, None if the table has no batch of the query."""

    url: str
    name: str
    query: str
    batch: int
    newest: int | None

    def __str__(self) -> str:
        held = "no batch of it" if self.newest is None else f"its batches up to {self.newest}"
        first = 0 if self.newest is None else self.newest + 1
        return (
            f"{self.name} of {self.url} is lost: query {self.query} writes batch {self.batch} and "
            f"has written others before it, but the table holds {held}. Restore it from a backup, "
            f"or let the query run again from batch {first}: {HOW_TO_GO_BACK}"
        )


@dataclass(eq=False)
class UncertainCommitError(CheckpointStoreError):
    """A commit of `version` took so long that retention deleted the preceding version. So nobody
    can tell if the table has the rows of the commit. `newest`: the table's newest version."""

    url: str
    version: int
    newest: int
    writer: str

    def __str__(self) -> str:
        return (
            f"{self.writer} put version {self.version} of {self.url} so late that nobody can tell "
            f"whether version {self.newest} has its rows: look for them, and write what is missing"
        )


@dataclass(eq=False)
class TableSchemaError(CheckpointStoreError):
    """Rows have other columns than the table."""

    url: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.url}: {self.problem}; {self.remedy}"


@dataclass(eq=False)
class NotAStoreError(CheckpointStoreError):
    """A URL has neither a table, nor the store of an operator, nor a query's checkpoint."""

    url: str
    below: tuple[str, ...] = ()

    def __str__(self) -> str:
        hint = f"; below it there are {', '.join(self.below[:10])}" if self.below else ""
        return (
            f"{self.url} is neither a table, nor the store of an operator, nor the checkpoint of a "
            "query with a batch that is committed (it has no table.json, no store.json and nothing "
            f"in commits/){hint}. Name the directory of a table, <store>/<query id>/<operator>, or "
            "the checkpointLocation of a query"
        )


@dataclass(eq=False)
class StateNotFoundError(CheckpointStoreError):
    """A store has no state of this name, or the caller did not name one of several states."""

    url: str
    state: str | None
    present: tuple[str, ...]

    def __str__(self) -> str:
        states = ", ".join(self.present) or "none"
        asked = "no state is named" if self.state is None else f"there is no state {self.state!r}"
        return f"{self.url}: {asked}; its states are {states}. {self.words.choose_state}"


@dataclass(eq=False)
class WrittenTwiceError(CheckpointStoreError):
    """A run of a query writes the same batch into a table a second time."""

    url: str
    query: str
    batch: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of query {self.query} is written into {self.url} twice: only the "
            "first write counts, as when Spark repeats a batch. Join what is written to one "
            "DataFrame (union), or write into two tables"
        )


@dataclass(eq=False)
class StoreMismatchError(CheckpointStoreError):
    """A store was created with another value of `field` than the caller expects."""

    url: str
    field: str
    stored: str
    expected: str

    def __str__(self) -> str:
        field, stored, expected = self.field, self.stored, self.expected
        if field == "key_schema_json":
            field, (stored, expected) = "key columns", schema_texts(stored, expected)
        return (
            f"{self.url} was created with {field} {stored}, not {expected}: go back to {stored}, "
            "or give this operator a new store (another name, or a new Spark checkpoint location)"
        )


class TableMismatchError(StoreMismatchError):
    """A table was created with another value of an option that is fixed at creation."""

    def __str__(self) -> str:
        return (
            f"the table {self.url} was created with {self.field} {self.stored}, not "
            f"{self.expected}: leave the option out, or write into another table. If the write "
            f"that created it failed, and it has no rows, delete {self.url}/table.json to create "
            "it anew"
        )


@dataclass(eq=False)
class NotATableError(CheckpointStoreError):
    """A table cannot be created at `url`, because an operator's store, or foreign files and
    directories, are there. `strangers`: the names of these files and directories."""

    url: str
    strangers: tuple[str, ...]

    def __str__(self) -> str:
        unnamed = len(self.strangers) - 5
        named = ", ".join(self.strangers[:5]) + (f" and {unnamed} more" if unnamed > 0 else "")
        return (
            f"{self.url} is no table and not empty: it has {named}. A table needs a directory of "
            "its own: write it to a new or empty one"
        )


@dataclass(eq=False)
class UnsupportedFormatError(CheckpointStoreError):
    """An object has a format version that this release does not know."""

    url: str
    name: str
    version: int
    supported: int

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} has format version {self.version}; this release of "
            f"cowstate reads up to {self.supported}: upgrade cowstate"
        )


@dataclass(eq=False)
class VersionNotRetainedError(CheckpointStoreError):
    """A version was deleted by retention, was rolled back, or is not written yet.

    `version` is None if the caller asked for the newest version; `oldest` and `newest` are None if
    the store has no version at all.
    """

    url: str
    version: int | None
    oldest: int | None
    newest: int | None

    def __str__(self) -> str:
        if self.oldest is None or self.newest is None:
            return f"{self.url} holds no version yet: let the query that writes it run first"
        held = f"it holds versions {self.oldest} to {self.newest}"
        if self.version is None or self.version < 0 or self.oldest < self.version < self.newest:
            return f"version {self.version} of {self.url} is not there; {held}. Ask for another one"
        if self.version > self.newest:
            return (
                f"version {self.version} of {self.url} is not written yet; {held}. "
                f"{self.words.choose_version}"
            )
        return (
            f"version {self.version} of {self.url} was deleted by retention; {held}. "
            f"{self.words.choose_version}. {_HOW_TO_KEEP_MORE}"
        )


@dataclass(eq=False)
class VersionMissingError(VersionNotRetainedError):
    """A version is gone although earlier and later versions exist, so retention did not delete it.
    `what`: the objects to restore; `between`: the versions next to the gap."""

    version: int
    oldest: int
    newest: int
    between: tuple[int, int]
    what: str

    def __str__(self) -> str:
        before, after = self.between
        return (
            f"version {self.version} of {self.url} is missing, although versions {before} and "
            f"{after} are there. Restore {self.what} from a backup. The other versions, "
            f"{self.oldest} to {self.newest}, can be read by their number, and changes up to "
            f"version {before} or after version {after}"
        )


@dataclass(eq=False)
class TimestampOutOfRangeError(CheckpointStoreError):
    """A time is before the oldest version, or after the newest. All times are ms since 1970."""

    url: str
    timestamp_ms: int
    oldest_ms: int
    newest_ms: int

    def __str__(self) -> str:
        asked, oldest, newest = map(_utc, (self.timestamp_ms, self.oldest_ms, self.newest_ms))
        return (
            f"{self.url} has no known version of {asked}: its oldest is of {oldest}, its newest of "
            f"{newest}. Ask for a time between them, or give no time to get the newest. "
            f"{_HOW_TO_KEEP_MORE}"
        )


@dataclass(eq=False)
class UnknownColumnError(CheckpointStoreError):
    """A state has no column of this name."""

    url: str
    name: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        near = get_close_matches(self.name, self.columns)
        meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        return f"{self.url} has no column {self.name!r}: {meant}It has {', '.join(self.columns)}"


def _of_epoch(name: str, epoch: int | None) -> str:
    if epoch is None or is_of_table(name):
        return ""
    return f" of batch {epoch}" if is_of_checkpoint(name) else f" of epoch {epoch}"


def _few(subtasks: tuple[int, ...]) -> str:
    shown = ", ".join(str(subtask) for subtask in subtasks[:10])
    return shown if len(subtasks) <= 10 else f"{shown} and {len(subtasks) - 10} more"


def _utc(timestamp_ms: int) -> str:
    return moment_text(timestamp_ms, lambda at: at.isoformat(sep=" ", timespec="milliseconds"))
