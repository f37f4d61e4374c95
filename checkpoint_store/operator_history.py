"""The epochs of one state of a Python operator, as readers see them. See state_history.

A version is an epoch that is whole, on the live timeline: after a rollback the epochs that were
rolled back are not. An epoch is whole when its manifest is there, or the barriers of all its
subtasks are: its last writer died between barrier and manifest, and the query went on from it. When
it was committed is what the store says of its manifest, or of its last barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store import checkpoint_layout as layout
from checkpoint_store.barrier_alignment import align
from checkpoint_store.checkpoint_layout import BarrierName, EpochDirectory, ManifestName
from checkpoint_store.completed_checkpoint import CompletedCheckpoint, StateSchema
from checkpoint_store.errors import ObjectMissingError, StateNotFoundError, VersionNotRetainedError
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.object_store import ObjectInfo, ObjectStore
from checkpoint_store.published_objects import PublishedObjects
from checkpoint_store.row_fold import ADDED_COLUMNS
from checkpoint_store.state_file import decode_state_file
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.state_history import StateShape, StateVersion, VersionInfo
from checkpoint_store.store_metadata import StoreMetadata
from checkpoint_store.table_schema import column_names

# As many as are retained by default, and a few more: a stream asks for those of its next batch
# several times.
_REMEMBERED_MANIFESTS = 128


@dataclass(frozen=True, slots=True)
class _WholeEpoch:
    """An epoch's manifest, or, if it has none, what its barriers make up."""

    checkpoint: ManifestName | CompletedCheckpoint
    timestamp_ms: int


@dataclass
class OperatorHistory:
    """The StateHistory of one state; `state` may be None if the operator has only one.

    `published`: the objects of the store, with what all calls remember of them.
    """

    store: ObjectStore
    metadata: StoreMetadata
    state: str | None
    published: PublishedObjects = field(init=False, repr=False, compare=False)
    _epochs: dict[int, _WholeEpoch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published = PublishedObjects(self.store, _REMEMBERED_MANIFESTS)

    @property
    def url(self) -> str:
        """See StateHistory."""
        return self.store.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory."""
        return self.metadata.max_parallelism

    def versions(self) -> list[int]:
        """See StateHistory. Two listings, and one for each epoch that has no manifest."""
        times: dict[ManifestName, int] = {}
        for info in self.store.list(layout.MANIFESTS):
            name = layout.parse_manifest(info.name)
            if name is not None and name.length == info.length:
                times[name] = _milliseconds(info)
        manifests = {
            EpochDirectory(name.epoch, name.run_number): _WholeEpoch(name, times[name])
            for name in sorted(times, key=lambda name: (name.attempts, name.unique))
        }
        self._epochs = dict(reversed([*self._timeline(manifests)]))
        return list(self._epochs)

    def at(self, version: int) -> StateVersion:
        """See StateHistory. Raises StateNotFoundError if the operator has no such state then."""
        return self.version_of(*self._read(version))

    def checkpoint_at(self, version: int) -> CompletedCheckpoint:
        """The barriers of a version. Raises VersionNotRetainedError."""
        return self._read(version)[0]

    def version_of(self, checkpoint: CompletedCheckpoint, timestamp_ms: int) -> StateVersion:
        """What the barriers of an epoch, all or some, say of the state."""
        handles = tuple(handle for one in checkpoint.barriers for handle in one.handles)
        version = checkpoint.epoch
        return StateVersion(
            info=VersionInfo(version, timestamp_ms),
            shape=self._shape(checkpoint),
            changes=tuple(h for h in handles if h.epoch == version and h.kind == "changelog"),
            state=handles,
        )

    def barrier_times(self, directory: EpochDirectory) -> dict[BarrierName, int]:
        """The barriers of an epoch and run, each with when it was published (ms since 1970)."""
        times: dict[BarrierName, int] = {}
        for info in self.store.list(str(directory)):
            name = layout.parse_barrier(info.name)
            if name is not None and name.length == info.length:
                times[name] = _milliseconds(info)
        return times

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory."""
        data = self.published.read(handle.name, handle.epoch)
        return decode_state_file(data, handle, key_groups, self.url)

    def _read(self, version: int) -> tuple[CompletedCheckpoint, int]:
        """The barriers of a version, and when it was committed."""
        if version not in self._epochs:
            self.versions()
        found = self._epochs.get(version)
        if found is None:
            raise self._not_retained(version)
        if isinstance(found.checkpoint, CompletedCheckpoint):
            return found.checkpoint, found.timestamp_ms
        try:
            manifest = self.published.read_manifest(found.checkpoint)
        except ObjectMissingError as error:
            self.versions()
            raise self._not_retained(version) from error
        return manifest, found.timestamp_ms

    def _timeline(
        self, manifests: Mapping[EpochDirectory, _WholeEpoch]
    ) -> Iterator[tuple[int, _WholeEpoch]]:
        """The whole epochs of the live timeline, newest first; see checkpoint_retention."""
        oldest = min((directory.epoch for directory in manifests), default=-1)
        before: int | None = None
        cleaned = False
        directories = {*manifests, *self.published.epoch_directories()}
        for directory in sorted(directories, key=_lineage, reverse=True):
            if before is not None and directory.epoch >= before:
                continue
            found = manifests.get(directory)
            if found is None and not (cleaned and directory.epoch < oldest):
                found = self._without_manifest(directory)
                # Retention deletes the barriers too, and leaves directories of files still needed.
                cleaned = found is None and directory.epoch < oldest
            if found is not None:
                before = directory.epoch
                yield before, found

    def _without_manifest(self, directory: EpochDirectory) -> _WholeEpoch | None:
        times = self.barrier_times(directory)
        checkpoint = self._aligned([*times]) if _may_be_aligned(times) else None
        return None if checkpoint is None else _WholeEpoch(checkpoint, max(times.values()))

    def _aligned(self, names: Sequence[BarrierName]) -> CompletedCheckpoint | None:
        barriers = self.published.read_barriers(names)
        epoch, run, parallelism = max((one.epoch, one.run, one.parallelism) for one in barriers)
        return align(barriers, epoch, run, parallelism).completed()

    def _not_retained(self, version: int) -> VersionNotRetainedError:
        oldest, newest = min(self._epochs, default=None), max(self._epochs, default=None)
        return VersionNotRetainedError(self.url, version, oldest, newest)

    def _shape(self, checkpoint: CompletedCheckpoint) -> StateShape:
        schema = self._schema(checkpoint)
        keys = column_names(self.metadata.key_schema_json)
        columns = list(keys)
        for name in column_names(schema.schema_json):
            while name in columns or name in ADDED_COLUMNS:
                name += "_"
            columns.append(name)
        return StateShape(
            state=schema.name,
            key_schema_json=self.metadata.key_schema_json,
            value_schema_json=schema.schema_json,
            columns=tuple(columns),
            kind=schema.kind,
        )

    def _schema(self, checkpoint: CompletedCheckpoint) -> StateSchema:
        states = {one.name: one for barrier in checkpoint.barriers for one in barrier.states}
        if self.state is None and len(states) == 1:
            return next(iter(states.values()))
        if self.state not in states:
            raise StateNotFoundError(self.url, self.state, tuple(states))
        return states[self.state]


def _may_be_aligned(names: Iterable[BarrierName]) -> bool:
    """Known from the names: no barrier is read for it."""
    subtasks = {(name.parallelism, name.subtask) for name in names}
    present = Counter(parallelism for parallelism, _ in subtasks)
    return any(count == parallelism for parallelism, count in present.items())


def _lineage(directory: EpochDirectory) -> tuple[int, int]:
    return directory.run_number, directory.epoch


def _milliseconds(info: ObjectInfo) -> int:
    return int((info.modified or 0) * 1000)
