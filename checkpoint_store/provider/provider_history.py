"""The batches of a query on the state store provider, as readers see them. See state_history.

A version is a batch that Spark's commit log names, and was committed when its entry was written.
The key groups are the partitions of the store: rows say which one they are of, but what a key's
partition is only Spark's hash tells. A version has two handles a partition:

    changes   the changelog of the batch
    state     the whole state, named <version>-<unique>; which files it takes is found out when it
              is read, because one that is damaged may be passed over for others

Rows are read as the provider restores them, see provider_state. The oldest version is the oldest
whose state every partition can still be restored to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.spark_schema import UnsupportedSparkTypeError
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_store import ObjectInfo, ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.provider.provider_columns import ProviderColumns
from checkpoint_store.provider.provider_errors import UnreadableStateError, VersionNotFoundError
from checkpoint_store.provider.provider_file_names import StateId
from checkpoint_store.provider.provider_state import PartitionReader, StorePartition
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.provider.spark_checkpoint import (
    COMMITS,
    committed_ids,
    listed_commits,
    partitions_of,
    schema_file_of,
    state_schemas,
)
from checkpoint_store.states.state_history import StateVersion, VersionInfo


@dataclass(frozen=True, slots=True)
class _Listed:
    """What was there when the checkpoint was looked at: commits by batch, the partitions' files."""

    commits: Mapping[int, ObjectInfo] = field(default_factory=dict)
    partitions: tuple[PartitionReader, ...] = ()
    oldest: int = 0

    @property
    def versions(self) -> list[int]:
        """The batches whose state is there, rising."""
        return [batch for batch in self.commits if batch >= self.oldest]


@dataclass
class ProviderHistory:
    """The StateHistory of one store of an operator. `partitions` is how many the store has."""

    checkpoint: ObjectStore
    store: ProviderStore
    partitions: int
    _listed: _Listed = field(default_factory=_Listed, repr=False, compare=False)

    @classmethod
    def of(cls, checkpoint: ObjectStore, store: ProviderStore) -> ProviderHistory:
        """Raises StoreNotFoundError, which names the stores that there are; CorruptObjectError."""
        return cls(checkpoint, store, partitions_of(checkpoint, store.operator_id, store.name))

    @property
    def url(self) -> str:
        """See StateHistory."""
        return self.checkpoint.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory."""
        return self.partitions

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns, in order."""
        return column_names(self._columns.shape.key_schema_json)

    def versions(self) -> list[int]:
        """See StateHistory. A listing, and one for each partition if there are other commits."""
        return self._refreshed().versions

    def at(self, version: int) -> StateVersion:
        """See StateHistory. Raises ObjectMissingError, too, which names a file of the provider that
        is gone, and UnreadableStateError if another provider wrote the state."""
        listed = self._listed
        if version not in listed.versions:
            listed = self._refreshed()
        if version not in listed.versions:
            raise self.absent(version, listed.versions)
        uniques = committed_ids(self.checkpoint, version, self.store.operator_id)
        changes, state = [], []
        for number, partition in enumerate(listed.partitions):
            made = self._state_at(partition, version, uniques)
            key_groups = KeyGroupRange(number, number)
            name = f"{partition.directory}/{made.version:019d}-{made.unique}"
            length = partition.bytes_of(partition.files_of(made))
            state.append(StateHandle("snapshot", name, length, "", key_groups, version, 0))
            changelog = partition.changelog_of(made)
            length = 0 if changelog is None else partition.bytes_of([changelog])
            name = f"{name}.changes"
            changes.append(StateHandle("changelog", name, length, "", key_groups, version, 0))
        return StateVersion(
            info=VersionInfo(version, _milliseconds(listed.commits[version])),
            shape=self._columns.shape,
            changes=tuple(changes),
            state=tuple(state),
            base=version - 1 if version else None,
        )

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """See StateHistory. Spark commits its batches in order and leaves none out."""
        oldest, newest = min(versions, default=None), max(versions, default=None)
        place = bisect_left(versions, version)
        if oldest is None or newest is None or not 0 < place < len(versions):
            return VersionNotRetainedError(self.url, version, oldest, newest)
        between = versions[place - 1], versions[place]
        name = f"{COMMITS}/{version}"
        return VersionMissingError(self.url, version, oldest, newest, between, name)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory. Raises ChangesNotKnownError if only the state after the batch is there,
        and VersionNotRetainedError if it was deleted since `handle` was made."""
        number = handle.key_groups.start
        if number not in key_groups:
            return
        made = _state_of(handle)
        # Listed again: maintenance replaces files by others that hold the same.
        partition = self._partition(number)
        is_changes = handle.kind == "changelog"
        try:
            files = [partition.changelog(made)] if is_changes else partition.restored(made)
        except ObjectMissingError:
            self._listed = _Listed()
            versions = self.versions()
            if handle.epoch not in versions:
                raise self.absent(handle.epoch, versions) from None
            raise
        columns = self._columns
        for keys, values in partition.rows(files, columns.schemas, keeps_all=is_changes):
            yield columns.batch(keys, values, number)

    def _refreshed(self) -> _Listed:
        """What is there now. Files are listed again only if there are other commits."""
        listed, commits = self._listed, listed_commits(self.checkpoint)
        if commits != listed.commits:
            partitions = tuple(in_parallel(self._partition, range(self.partitions)))
            listed = self._listed = _Listed(commits, partitions, _oldest(partitions, commits))
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

    def _state_at(
        self, partition: PartitionReader, version: int, uniques: set[str] | None
    ) -> StateId:
        """The state of a partition after a batch."""
        try:
            return partition.state_at(version + 1, uniques)
        except VersionNotFoundError as error:
            # The batch is committed and not older than what is retained.
            name = f"{partition.directory}/{version + 1:019d}-*.changelog.arrow"
            raise ObjectMissingError(self.url, name, version) from error

    def _partition(self, number: int) -> PartitionReader:
        return PartitionReader(self.checkpoint, self._where(number))

    def _where(self, number: int) -> StorePartition:
        return StorePartition(self.store.operator_id, number, self.store.name)


def _oldest(partitions: Sequence[PartitionReader], commits: Mapping[int, ObjectInfo]) -> int:
    """The oldest batch whose state every partition can be restored to; if one cannot be restored to
    any, the oldest that is committed: reading it is an error that says what is gone."""
    first = min(commits, default=0)
    oldest = [partition.oldest_restorable for partition in partitions]
    return max((version - 1 for version in oldest if version is not None), default=first)


def _state_of(handle: StateHandle) -> StateId:
    version, unique = handle.name.rpartition("/")[2].split(".")[0].split("-")
    return StateId(int(version), unique)


def _milliseconds(commit: ObjectInfo) -> int:
    return int((commit.modified or 0) * 1000)
