"""The batches of a query on the state store provider, as readers see them. See state_history.

A version is a batch in Spark's commit log. Its time is the time at which the log entry was written.
The key groups are the partitions of the store: each row names its partition, but only Spark's hash
tells the partition of a key. A version has two handles per partition:

    state     the whole state after the batch
    changes   the changes of the batch

A handle is named after the commit, not after a file. The files of a handle are chosen when the
handle is read, because maintenance replaces files, and a damaged file may be passed over if other
files replace it. The chosen files are for the handle's number of partitions, even if the query is
rescaled meanwhile. Rows are read as the provider restores them, see provider_state.

A reader of one partition lists only that partition and partition 0. Partition 0 stands for all
partitions: its oldest version is the oldest version of all, and its files are about as large as in
any other partition, because Spark's hash spreads keys evenly.

A query may get another number of partitions between two batches. The state after the first of the
two batches has the new number; the changes of that batch have the former number.

If the state is in an object store, the files are read from the object store. The state may be moved
while a reader is open: if files are missing, the reader looks up the place in the checkpoint again,
and reads there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.spark_schema import UnsupportedSparkTypeError
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from checkpoint_store.object_names import COMMITS
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.dealt_partitions import DealtPartitions
from checkpoint_store.provider.provider_columns import ProviderColumns
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.provider_file import ProviderFile
from checkpoint_store.provider.provider_file_names import StateId
from checkpoint_store.provider.provider_state import PartitionReader, StorePartition
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.provider.spark_checkpoint import (
    committed_ids,
    listed_commits,
    partitions_of,
    query_id_of,
    schema_file_of,
    state_schemas,
)
from checkpoint_store.provider.state_place import OpenStore, state_files
from checkpoint_store.states.state_history import (
    StateVersion,
    VersionInfo,
    absent_version,
)


@dataclass(frozen=True)
class _ListedCheckpoint:
    """The content of the checkpoint at the last look: partitions, with the files of partition 0,
    and commits by batch. The versions are the oldest batch that can be restored, and all later
    batches. A later batch that cannot be restored is damaged, and reading the batch is an error."""

    dealt: DealtPartitions
    commits: Mapping[int, ObjectInfo] = field(default_factory=dict)

    @cached_property
    def versions(self) -> list[int]:
        """The oldest batch that can be restored, and all later batches, ascending; all batches if
        no batch can be restored."""
        first = self.dealt.first
        oldest = None if first is None else first.files.oldest_restorable()
        return [batch for batch in self.commits if oldest is None or batch + 1 >= oldest]


@dataclass
class ProviderHistory:
    """The StateHistory of one store of an operator of a query.

    `checkpoint`: the query's checkpoint. `store`: the operator and its store. `files`: the object
    store that has the state files now, often the checkpoint itself. `open_place`: opens the new
    object store after the state files were moved.
    """

    checkpoint: ObjectStore
    store: ProviderStore
    files: ObjectStore
    open_place: OpenStore
    _listed: _ListedCheckpoint = field(repr=False, compare=False)

    @classmethod
    def of(
        cls, checkpoint: ObjectStore, store: ProviderStore, open_place: OpenStore
    ) -> ProviderHistory:
        """Open the history. Raises StoreNotFoundError, which names the existing stores;
        CorruptObjectError."""
        files = state_files(checkpoint, open_place)
        stored = partitions_of(checkpoint, files, store.operator_id, store.name)
        dealt = DealtPartitions(stored, QueryPartitions(checkpoint), None)
        return cls(checkpoint, store, files, open_place, _ListedCheckpoint(dealt))

    @property
    def url(self) -> str:
        return self.checkpoint.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory. The number grows if the query gets more partitions."""
        return self._listed.dealt.most

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns, in order."""
        return column_names(self._columns.shape.key_schema_json)

    @cached_property
    def query_id(self) -> str:
        """The query's id. Raises ObjectMissingError, CorruptObjectError."""
        return query_id_of(self.checkpoint)

    def attempt_at(self, version: int) -> str:
        """The id (`unique`) of the attempt that counts for a batch. If the query goes back and runs
        the batch again, the id changes. Raises the errors of `read`."""
        partition, state = self.state_of(0, version)
        made = partition.files.made_by_batch(state)
        assert made is not None, "partition 0 is always there"
        return made.unique

    def versions(self) -> list[int]:
        """See StateHistory. Costs one listing, and a second listing if the commits have changed."""
        return self._refreshed().versions

    def at(self, version: int) -> StateVersion:
        """See StateHistory. Raises UnreadableStateError, too, if another provider wrote the state.
        Missing or damaged files show only when the version is read."""
        listed = self.listed_with(version)
        committed_ms = listed.commits[version].modified_ms
        assert listed.dealt.first is not None, "a version was listed"
        whole, changed = listed.dealt.first.sizes_at(version + 1)
        after, during = listed.dealt.after(version), listed.dealt.during(version)
        store = f"{self.store.operator_id}/{self.store.name}"

        def handles(kind: StateFileKind, length: int, partitions: int) -> tuple[StateHandle, ...]:
            # The time distinguishes a batch from a second run of the batch, after the query went
            # back. The number of partitions distinguishes a state from the rescaled state.
            name = f"{store}/{version}@{committed_ms}.{kind}-{partitions}"
            groups = (KeyGroupRange(number, number) for number in range(partitions))
            return tuple(
                StateHandle(kind, f"{name}/{group.start}", length, "", group, version, 0)
                for group in groups
            )

        return StateVersion(
            info=VersionInfo(version, committed_ms),
            shape=self._columns.shape,
            changes=handles("changelog", changed, during),
            state=handles("snapshot", whole, after),
            base=version - 1 if version else None,
            regroups=after != during,
            partitions=after,
        )

    def listed_with(self, version: int) -> _ListedCheckpoint:
        """The last look at the checkpoint, or a new look if the last look did not show the version.
        Raises VersionNotRetainedError."""
        listed = self._listed
        if version not in listed.commits or version not in listed.versions:
            listed = self._refreshed()
        if version not in listed.versions:
            raise self.absent(version, listed.versions)
        return listed

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """See StateHistory. Spark commits batches in order and leaves no batch out."""
        return absent_version(self.url, version, versions, f"{COMMITS}/{version}")

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory. Raises ChangesNotKnownError if only the state after the batch is known,
        and VersionNotRetainedError if the version was deleted after `handle` was made."""
        number = handle.key_groups.start
        if number not in key_groups:
            return
        partition, files = self._files_of(handle)
        columns, is_changes = self._columns, handle.kind == "changelog"
        for keys, values in partition.rows(files, columns.schemas, keeps_all=is_changes):
            yield columns.batch(keys, values, number)

    def _files_of(self, handle: StateHandle) -> tuple[PartitionReader, list[ProviderFile]]:
        """The partition of a handle, and the handle's files, verified. Raises the errors of
        `read`."""
        with suppress(ObjectMissingError):
            return self._listed_files_of(handle)
        try:
            # Maintenance may have replaced files since they were listed.
            return self._listed_files_of(handle)
        except ObjectMissingError:
            versions = self._refreshed(anew=True).versions
            if handle.epoch not in versions:
                raise self.absent(handle.epoch, versions) from None
            # The query may have fewer partitions now.
            return self._listed_files_of(handle)

    def _listed_files_of(self, handle: StateHandle) -> tuple[PartitionReader, list[ProviderFile]]:
        """The partition of a handle, and the handle's files, verified, by one listing. Raises
        ObjectMissingError for files deleted since the listing."""
        number, batch = handle.key_groups.start, handle.epoch
        if handle.kind == "changelog":
            partition, state = self.state_of(number, batch)
            return partition, [partition.changes(state)]
        partition, state = self.state_of(number, batch, _partitions_in(handle.name))
        return partition, partition.restored(state)

    def state_of(
        self, number: int, batch: int, partitions: int | None = None
    ) -> tuple[PartitionReader, StateId]:
        """See `states_of`, for one partition."""
        return next(self.states_of([number], batch, partitions))

    def states_of(
        self, numbers: Iterable[int], batch: int, partitions: int | None = None
    ) -> Iterator[tuple[PartitionReader, StateId]]:
        """Yield partitions as listed now, each with its state after a batch. `partitions`: the
        number of partitions that the state is for; None: the number that the query has. Raises
        VersionNotRetainedError, ObjectMissingError, CorruptObjectError."""
        try:
            uniques = committed_ids(self.checkpoint, batch, self.store.operator_id)
        except ObjectMissingError:
            raise self.absent(batch, self._refreshed(anew=True).versions) from None
        dealt = self._listed.dealt
        for number in numbers:
            partition = PartitionReader(self.files, self._where(number), dealt.query)
            # The commit log has ids of the partitions after a rescale, not of the former
            # partitions.
            ids = uniques if number < dealt.after(batch) else None
            yield partition, partition.state_at(batch + 1, ids, partitions)

    def _refreshed(self, *, anew: bool = False) -> _ListedCheckpoint:
        """List the commits, and if the commits have changed, the files of partition 0. `anew`:
        list these files in any case, after looking up again which object store has the files."""
        if anew:
            self.files = state_files(self.checkpoint, self.open_place)
        listed, commits = self._listed, listed_commits(self.checkpoint)
        if anew or commits != listed.commits:
            query = QueryPartitions(self.checkpoint)
            first = PartitionReader(self.files, self._where(0), query)
            stored = listed.dealt.stored
            if anew or first.files.has_rescaled or listed.dealt.was_rescaled:
                operator, name = self.store.operator_id, self.store.name
                stored = partitions_of(self.checkpoint, self.files, operator, name)
            listed = self._listed = _ListedCheckpoint(
                DealtPartitions(stored, query, first), commits
            )
        return listed

    @cached_property
    def _columns(self) -> ProviderColumns:
        operator, store_name = self.store.operator_id, self.store.name
        name = schema_file_of(operator, store_name)
        schemas = state_schemas(self.checkpoint, operator, store_name)
        try:
            return ProviderColumns.of(store_name, *schemas, name)
        except UnsupportedSparkTypeError as error:
            raise UnreadableStateError(self.url, name, str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptObjectError(self.url, name, f"no schemas: {error!r}") from error

    def _where(self, number: int) -> StorePartition:
        return StorePartition(self.store.operator_id, number, self.store.name)


def _partitions_in(name: str) -> int:
    """The number of partitions in the name of a handle. `ProviderHistory.at` makes the name."""
    return int(name.rpartition("/")[0].rpartition("-")[2])
