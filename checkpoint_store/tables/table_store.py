"""A table: many writers write rows, and one writer at a time commits a version.

    writers of rows    each puts a file under a name of its own, durable on return
    one committer      puts versions/<n>.json, which names the files: now the table has the files

The writer that first creates a version's name owns the version. Any other writer finds the name
taken, and tries again with the next version. If a store cannot tell that a name is taken, the
writer reads the version back to see whose bytes are there. A version overwritten after this read is
lost, so such a store is not safe if two writers commit at the same instant.

If a streaming query writes the table, any other writer is refused before its commit (I9), unless
the other writer takes over the table. A batch that is already in the table changes nothing (I6), so
a query may repeat its last batch after any failure.

A version is created whole or not at all, and only retention deletes versions. So a version with
other bytes than the written bytes is damaged, for readers and for writers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store import object_names
from checkpoint_store.errors import (
    ConflictingWriterError,
    CorruptObjectError,
    LostFilesError,
    LostVersionError,
    NotATableError,
    ObjectMissingError,
    TableMismatchError,
    UncertainCommitError,
    WrittenTwiceError,
)
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.files.state_file import StateFileHeader
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from checkpoint_store.objects.named_object import (
    list_named,
    put_if_absent,
    read_or_create,
    unique_of_uuid,
)
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.schema_text import schema_text
from checkpoint_store.states.event_time import NO_WATERMARKS
from checkpoint_store.tables import table_layout as layout
from checkpoint_store.tables.table_codec import (
    decode_compaction,
    decode_table,
    decode_version,
    encode_compaction,
    encode_table,
    encode_version,
)
from checkpoint_store.tables.table_layout import BatchDirectory, CompactionName
from checkpoint_store.tables.table_schema import evolved
from checkpoint_store.tables.table_version import (
    TableCompaction,
    TableMetadata,
    TableVersion,
    compacted,
    standing_of,
)
from checkpoint_store.tables.unnamed_files import LOOK_AFTER_SECONDS, shown_alive

_COMMIT_TRIES = 20
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class TableFileWriter:
    """The writer of a file: the query or batch job, its batch, and the task."""

    writer: str
    batch: int
    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Files to publish as one version, in the order in which files apply.

    Fields:

        writer          query or batch job
        run             start of the query, which then owns the table; None for a job
        batch           batch of the query
        schema_json     columns of the rows
        merges_schema   new columns are added to the table
        takes_over      a table of another query is taken over
        writers         number of tasks that wrote
        watermarks_ms   progress in event time, by task; only tasks with event times are listed
        after_all       the query writes every batch, so the preceding batch is in the table
        written_since   time at which the first file was written, in seconds since 1970; None:
                        a short time ago
    """

    writer: str
    run: str | None
    batch: int
    schema_json: str
    files: tuple[StateHandle, ...]
    merges_schema: bool = False
    takes_over: bool = False
    writers: int = 0
    watermarks_ms: Mapping[int, int] = field(default_factory=dict)
    after_all: bool = False
    written_since: float | None = None


Finish = Callable[[TableVersion], TableVersion]


def pause_between_tries(number: int) -> None:
    """Wait for a random part of a growing time, so that writers do not all come back at the same
    time."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**number)))


class TableStore:
    """The table in `store`. Safe to use from several processes.

    `now`: tells the time in seconds since 1970. `metadata`: the table's metadata, if known.
    `pause`: waits between the tries of a commit; takes the number of the try.
    """

    def __init__(
        self,
        store: ObjectStore,
        now: Callable[[], float] = time.time,
        metadata: TableMetadata | None = None,
        pause: Callable[[int], None] = pause_between_tries,
    ) -> None:
        self._store = store
        self._pause = pause
        self._files = StateFileStore(store)
        self._now = now
        self._metadata = metadata
        # A damaged compaction is None.
        self._known_compactions: dict[CompactionName, TableCompaction | None] = {}

    @property
    def url(self) -> str:
        return self._store.url

    def metadata(self) -> TableMetadata | None:
        """The options fixed when the table was created; None if there is no table. Raises
        CorruptObjectError, UnsupportedFormatError."""
        if self._metadata is None:
            try:
                data = self._store.get(object_names.TABLE)
            except ObjectMissingError:
                return None
            self._metadata = decode_table(data, Source(self.url, object_names.TABLE))
        return self._metadata

    def create(self, metadata: TableMetadata) -> TableMetadata:
        """Create the table, or check that the existing table has the same options. Raises the
        errors of `check`."""
        self.check(metadata)
        data = read_or_create(self._store, object_names.TABLE, encode_table(metadata))
        stored = decode_table(data, Source(self.url, object_names.TABLE))
        self._check_same(stored, metadata)
        self._metadata = stored
        return stored

    def check(self, metadata: TableMetadata) -> None:
        """Check that a table with these options is here, or could be created here.

        Raises TableMismatchError, which names the option and both values; NotATableError if an
        operator's store or foreign objects are there; ObjectMissingError if there are versions but
        no `table.json`.
        """
        stored = self.stored()
        if stored is not None:
            self._check_same(stored, metadata)

    def stored(self) -> TableMetadata | None:
        """The metadata in the store; None if there is no table, and a table may be created here.
        Raises NotATableError if other objects are there, and ObjectMissingError if there are
        versions but no `table.json`."""
        stored = self.metadata()
        if stored is None and self.versions():
            # A create writes the metadata first, so the metadata is looked for again after the
            # versions.
            stored = self.metadata()
            if stored is None:
                raise ObjectMissingError(self.url, object_names.TABLE)
        if stored is None:
            self._check_free()
        return stored

    def _check_same(self, stored: TableMetadata, asked: TableMetadata) -> None:
        asked_options = dict(_shown_options(asked))
        for option, value in _shown_options(stored):
            if value != asked_options[option]:
                raise TableMismatchError(self.url, option, value, asked_options[option])

    def _check_free(self) -> None:
        objects = [info.name for info in self._store.list("")]
        names = [name.strip("/") for name in (*objects, *self._store.list_directories(""))]
        strangers = [name for name in names if not layout.may_be_beside_a_table(name)]
        if strangers:
            raise NotATableError(self.url, tuple(sorted(strangers)))

    def versions(self) -> list[int]:
        """The numbers of the versions, oldest first. Costs one listing."""
        return sorted(list_named(self._store, object_names.VERSIONS, layout.parse_version))

    def read_version(self, number: int) -> TableVersion | None:
        """Read a version; None if the version does not exist. Raises CorruptObjectError,
        UnsupportedFormatError."""
        name = layout.version_name(number)
        try:
            data = self._store.get(name)
        except ObjectMissingError:
            return None
        return decode_version(data, Source(self.url, name, number))

    def newest(self) -> TableVersion | None:
        """The newest version, never an older version in its place; None if there is no version.
        Raises the errors of `read_version`."""
        numbers = self.versions()
        return self._read_listed(numbers[-1]) if numbers else None

    def version_or_damage(self, number: int) -> TableVersion | CorruptObjectError | None:
        """A version, or the error of a damaged version, which is logged once; None if the version
        is gone."""
        try:
            return self.read_version(number)
        except CorruptObjectError as error:
            tell_passed_over("version", error)
            return error

    def _read_listed(self, number: int) -> TableVersion:
        """Read the newest version of a listing. Retention never deletes this version."""
        version = self.read_version(number)
        if version is None:
            raise ObjectMissingError(self.url, layout.version_name(number), number)
        return version

    def compactions(self) -> tuple[TableCompaction, ...]:
        """All compactions. Costs one listing, and a read of each new compaction. A damaged
        compaction is passed over, because versions themselves name every needed file."""
        compactions: dict[CompactionName, TableCompaction | None] = {}
        for name in list_named(self._store, object_names.COMPACTIONS, layout.parse_compaction):
            if name in self._known_compactions:
                compactions[name] = self._known_compactions[name]
                continue
            # The compaction may have been deleted since the listing.
            with suppress(ObjectMissingError):
                compactions[name] = self._read_compaction(name)
        self._known_compactions = compactions
        return tuple(compaction for compaction in compactions.values() if compaction is not None)

    def _read_compaction(self, name: CompactionName) -> TableCompaction | None:
        """Read a compaction; None if the compaction is damaged."""
        data = self._store.get(str(name))
        try:
            return decode_compaction(data, Source(self.url, str(name), name.version))
        except CorruptObjectError as error:
            tell_passed_over("compaction", error)
            return None

    def write_rows(
        self,
        kind: StateFileKind,
        table: pa.Table,
        writer: TableFileWriter,
        key_groups: KeyGroupRange | None = None,
    ) -> StateHandle:
        """Write a file of rows sorted by `_key_group`, durable on return. The file is part of the
        table once a version names the file. `key_groups`: the key groups of the rows; None: any."""
        assert self._metadata is not None, "open the table first"
        header = StateFileHeader(
            kind=kind,
            store_id=self._metadata.table_id,
            epoch=writer.batch,
            subtask=writer.subtask,
            key_groups=key_groups or self._metadata.key_groups,
        )
        directory = BatchDirectory(writer.writer, writer.batch)
        keys = column_names(self._metadata.key_schema_json)
        return self._files.write(table, header, str(directory), writer.attempt, keys)

    def shown_alive(
        self, writer: TableFileWriter, written_since: float | None = None
    ) -> AbstractContextManager[None]:
        """Protect files of a batch from the orphan sweep inside a `with` block.

        A task calls without `written_since`, and its files stay protected until the commit begins.
        A commit passes `written_since`, the time of the oldest file in seconds since 1970.
        """
        directory = str(BatchDirectory(writer.writer, writer.batch))
        return shown_alive(
            SignsOfLife(self._store, directory, writer.subtask, writer.attempt),
            until_commit=written_since is None,
            at_once=written_since is not None and self._now() - written_since > LOOK_AFTER_SECONDS,
        )

    def read_rows(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """Read the rows of `handle` in `key_groups`. All bytes are read and verified before
        this method returns. Raises ObjectMissingError, CorruptObjectError,
        UnsupportedFormatError."""
        return self._files.read(handle, key_groups)

    def commit(self, commit: TableCommit, finish: Finish | None = None) -> TableVersion:
        """Publish a version, and return the version. For a batch already in the table, publish
        nothing, and return the newest version.

        Versions are listed once. If the listing may be old, the next version is read by its name.
        `finish`: changes the new version before the version is put. It may replace the files of the
        state by files with the same content, and may change `failed_upkeep`. `finish` is called
        for the first try only; a further try goes without `finish`.

        Raises ConflictingWriterError, TableSchemaError, LostVersionError, LostFilesError,
        UncertainCommitError, CorruptObjectError, and WrittenTwiceError if a run of a query writes
        the same batch twice. Only a later run may repeat a batch.
        """
        newest = self._newest_for(commit)
        for number in range(_COMMIT_TRIES):
            if newest is not None and newest.batches.get(commit.writer, -1) >= commit.batch:
                self._check_repeated(newest, commit)
                return newest
            version = self._next(newest, commit)
            if finish is not None:
                version, finish = finish(version), None
            since = commit.written_since
            if since is not None and self._now() - since > LOOK_AFTER_SECONDS:
                self._check_there(commit.files, _named(commit))
            if self._put_version(version, newest, commit):
                return version
            self._pause(number)
            newest = self._after(newest) or self.newest()
            self._check_may_follow(newest, commit)
        raise ConflictingWriterError(self.url, "another one at the same time", commit.writer)

    def _newest_for(self, commit: TableCommit) -> TableVersion | None:
        """The newest version, None if there is no version. Raises ConflictingWriterError or
        LostVersionError if `commit` may not follow the version."""
        newest = self.newest()
        try:
            self._check_may_follow(newest, commit)
        except (ConflictingWriterError, LostVersionError):
            later = self._after(newest)
            if later is None:
                raise
            self._check_may_follow(later, commit)
            return later
        return newest

    def _after(self, version: TableVersion | None) -> TableVersion | None:
        """The newest version that follows `version`, found by names; None if there is no later
        version."""
        newest, number = None, 0 if version is None else version.version + 1
        while (later := self.read_version(number)) is not None:
            newest, number = later, number + 1
        return newest

    def _check_may_follow(self, newest: TableVersion | None, commit: TableCommit) -> None:
        owner = None if newest is None else newest.owner
        if owner not in (None, commit.writer) and not commit.takes_over:
            raise ConflictingWriterError(self.url, f"query {owner}", _named(commit))
        if newest is None or newest.batches.get(commit.writer, -1) < commit.batch:
            self._check_nothing_lost(newest, commit)

    def _check_repeated(self, newest: TableVersion, commit: TableCommit) -> None:
        same_run = commit.run is not None and newest.run == commit.run
        if same_run and newest.batches[commit.writer] == commit.batch:
            raise WrittenTwiceError(self.url, commit.writer, commit.batch)

    def _check_nothing_lost(self, newest: TableVersion | None, commit: TableCommit) -> None:
        """Raise LostVersionError if the query writes all its batches and has files of a batch that
        no version holds, because in that case a version is gone."""
        last_batch = None if newest is None else newest.batches.get(commit.writer)
        expected = 0 if last_batch is None else last_batch + 1
        if not commit.after_all or commit.batch <= expected:
            return
        names = self._store.list_directories(layout.batches_of_writer(commit.writer))
        directories = [parsed for name in names if (parsed := layout.parse_batch_directory(name))]
        if any(expected <= directory.batch < commit.batch for directory in directories):
            lost = layout.version_name(0 if newest is None else newest.version + 1)
            raise LostVersionError(self.url, lost, commit.writer, commit.batch, last_batch)

    def _check_there(self, files: tuple[StateHandle, ...], writer: str) -> None:
        """Raise LostFilesError if files are gone. Costs one listing for each batch."""
        names = {file.name for file in files}
        directories = sorted({name.rpartition("/")[0] for name in names})
        infos = in_parallel(self._store.list, directories)
        missing = sorted(names - {info.name for of_batch in infos for info in of_batch})
        if missing:
            raise LostFilesError(self.url, missing[0], writer, len(missing))

    def _next(self, newest: TableVersion | None, commit: TableCommit) -> TableVersion:
        milliseconds = int(self._now() * 1000)
        batches = {} if newest is None else dict(newest.batches)
        if commit.run is not None:
            batches[commit.writer] = commit.batch
        schema_json = commit.schema_json
        state: tuple[StateHandle, ...] = ()
        watermarks = NO_WATERMARKS if newest is None else newest.watermarks
        if newest is not None:
            milliseconds = max(milliseconds, newest.timestamp_ms + 1)
            schema_json = evolved(
                self.url, newest.schema_json, commit.schema_json, merge=commit.merges_schema
            )
            state = compacted(newest, self.compactions()).state
        return TableVersion(
            version=0 if newest is None else newest.version + 1,
            owner=commit.writer if commit.run is not None else None,
            run=commit.run,
            timestamp_ms=milliseconds,
            schema_json=schema_json,
            batches=batches,
            changes=commit.files,
            state=state + commit.files,
            watermarks=watermarks.advanced(commit.writers, commit.watermarks_ms),
            failed_upkeep=0 if newest is None else newest.failed_upkeep,
        )

    def _put_version(
        self, version: TableVersion, before: TableVersion | None, commit: TableCommit
    ) -> bool:
        """Put a version. Return False if another version took the name, or if retention had deleted
        the number before the put. In the latter case the version is deleted again, see
        standing_of."""
        name, data = layout.version_name(version.version), encode_version(version)
        if not put_if_absent(self._store, name, data):
            return False
        try:
            if self._store.get(name) != data:
                return False
            is_there = True
        except ObjectMissingError:
            is_there = False
        if is_there and before is not None and self.read_version(before.version) == before:
            return True
        numbers = self.versions()
        if not numbers or numbers[-1] <= version.version:
            return is_there
        newest = self._read_listed(numbers[-1])
        standing = standing_of(version, commit.writer, newest, numbers)
        if standing == "late":
            # A listing in pages beside a deletion may lack a version that was there.
            standing = standing_of(version, commit.writer, newest, self.versions())
        if standing == "unknown":
            raise UncertainCommitError(self.url, version.version, newest.version, _named(commit))
        if standing == "late":
            self._store.delete([name])
        return standing == "counts"

    def publish_compaction(self, compaction: TableCompaction) -> None:
        """Publish a compaction: from now on readers and the next commit use the files of the
        compaction in place of the files that it replaces. Raises LostFilesError if a file of the
        compaction is gone."""
        self._check_there(compaction.files, "the compaction")
        name = CompactionName(compaction.version, unique_of_uuid())
        self._store.put(str(name), encode_compaction(compaction))


def _shown_options(metadata: TableMetadata) -> list[tuple[str, str]]:
    return [
        ("keys", schema_text(metadata.key_schema_json)),
        ("sequenceBy", str(metadata.sequence_by)),
        ("ignoreNullUpdates", str(metadata.ignore_null_updates).lower()),
        ("maxParallelism", str(metadata.max_parallelism)),
    ]


def _named(commit: TableCommit) -> str:
    return f"query {commit.writer}" if commit.run is not None else f"batch job {commit.writer}"
