"""The epochs of one state of a Python operator, as readers see the epochs. See state_history.

A version is a whole epoch on the live timeline. After a rollback, the undone epochs are no longer
versions. An epoch is whole if its manifest exists. An epoch is also whole if the barriers of all
its subtasks exist: in this case the last writer still writes the manifest, or died between barrier
and manifest, and the query went on. The commit time of an epoch is the time that the store gives
the manifest or the last barrier.

If the manifest of an epoch is damaged, readers use the barriers, as a restore does. If the barriers
are damaged, too, the epoch is still a version. Reading the version is an error, and never leads to
an older version.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations

import pyarrow as pa

from checkpoint_store import object_names
from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.checkpoint_reader import CheckpointReader
from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint, StateSchema
from checkpoint_store.epochs.operator_layout import (
    BarrierName,
    BegunName,
    EpochDirectory,
    ManifestName,
)
from checkpoint_store.epochs.published_objects import PublishedObjects, latest_first
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    PartialEpochError,
    StateNotFoundError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.named_object import list_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.runs.rival_checkpoints import are_same
from checkpoint_store.runs.run_errors import contradicting
from checkpoint_store.runs.run_lineage import left_behind, lineage_of
from checkpoint_store.runs.run_starts import RunStarts
from checkpoint_store.states.row_fold import ADDED_COLUMNS
from checkpoint_store.states.state_history import (
    StateHistory,
    StateShape,
    StateVersion,
    VersionInfo,
    absent_version,
)

# As many manifests as epochs are retained by default, and a few more: a stream asks several times
# for the manifests of its next batch.
_REMEMBERED_MANIFESTS = 128


@dataclass(frozen=True, slots=True)
class _WholeEpoch:
    """The result of one run at an epoch: its manifests or, without a manifest, the checkpoint that
    the barriers form. `checkpoint` is None if the barriers are damaged. `timestamp_ms`: the commit
    time in ms since 1970."""

    directory: EpochDirectory
    timestamp_ms: int
    manifests: tuple[ManifestName, ...] = ()
    checkpoint: CompletedCheckpoint | None = None


@dataclass(slots=True)
class _ListedEpochs:
    """The runs and epochs of the last listing, and their live timeline."""

    begun: Sequence[BegunName] = ()
    manifests: Mapping[EpochDirectory, _WholeEpoch] = field(default_factory=dict)
    written: frozenset[EpochDirectory] = frozenset()
    timeline: tuple[EpochDirectory, ...] = ()
    rivals: tuple[EpochDirectory, ...] = ()


@dataclass
class OperatorHistory:
    """The StateHistory of one state; `state` may be None if the operator has only one state.

    `published`: the objects of the store, remembered across calls.
    """

    store: ObjectStore
    metadata: StoreMetadata
    state: str | None
    published: PublishedObjects = field(init=False, repr=False, compare=False)
    _reader: CheckpointReader = field(init=False, repr=False, compare=False)
    _starts: RunStarts = field(init=False, repr=False, compare=False)
    _epochs: dict[int, _WholeEpoch] = field(default_factory=dict)
    _listed: _ListedEpochs = field(default_factory=_ListedEpochs, repr=False, compare=False)
    _same: dict[tuple[EpochDirectory, EpochDirectory], bool] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.published = PublishedObjects(self.store, _REMEMBERED_MANIFESTS)
        self._reader = CheckpointReader(self.store, self.published)
        self._starts = RunStarts(self.store)

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def max_parallelism(self) -> int:
        return self.metadata.max_parallelism

    def versions(self) -> list[int]:
        """See StateHistory. The newest epoch is left out while the epoch is uncertain: several runs
        completed the epoch with different changes, and the store cannot tell which run Spark
        commits.

        Costs two listings. Costs one more listing if a run is new or a minute has passed, one more
        if several runs have the newest epoch, and one more for each epoch without a manifest.
        """
        infos = list_named(self.store, object_names.MANIFESTS, layout.parse_manifest)
        names_of: dict[EpochDirectory, list[ManifestName]] = {}
        for name in latest_first(infos):
            names_of.setdefault(name.directory, []).append(name)
        completed = {
            directory: _WholeEpoch(directory, infos[names[0]].modified_ms, tuple(names))
            for directory, names in names_of.items()
        }
        self._epochs = dict(reversed([*self._timeline(completed)]))
        uncertain = self._uncertain()
        if uncertain is not None:
            del self._epochs[uncertain]
        return [*self._epochs]

    @property
    def timeline(self) -> tuple[EpochDirectory, ...]:
        """The live timeline at the last call of `versions`, newest first; see RunLineage.epochs."""
        return self._listed.timeline

    def left_behind(self, read: EpochDirectory) -> tuple[EpochDirectory, ...]:
        """The epochs up to `read` that the live timeline no longer has, oldest first; empty if
        `read` is on the live timeline. See run_lineage.left_behind. Uses the listing of the last
        call of `versions`."""
        return left_behind(self._listed.begun, self._listed.written, read)

    def are_same(self, newer: EpochDirectory, older: EpochDirectory) -> bool | None:
        """True if two runs of an epoch went from the same base to the same state. None if the
        checkpoint of `newer` or `older` is incomplete, damaged or gone. Uses the listing of the
        last call of `versions`. May read all changes of the epoch into memory."""
        runs = newer, older
        if runs not in self._same:
            checkpoints = [self._completed_in(directory) for directory in runs]
            if checkpoints[0] is None or checkpoints[1] is None:
                return None
            self._same[runs] = are_same(self.store, checkpoints[0], checkpoints[1])
        return self._same[runs]

    def at(self, version: int) -> StateVersion:
        """See StateHistory. Raises StateNotFoundError if the version has no such state."""
        return self.version_of(*self.committed_at(version))

    def checkpoint_at(self, version: int) -> CompletedCheckpoint:
        """The barriers of a version. Raises VersionNotRetainedError."""
        return self.committed_at(version)[0]

    def committed_at(self, version: int) -> tuple[CompletedCheckpoint, int]:
        """The barriers of a version, and the version's commit time in ms since 1970. Raises
        VersionNotRetainedError."""
        if version not in self._epochs:
            self.versions()
        epoch = self._epochs.get(version)
        if epoch is None:
            raise self.absent(version, [*self._epochs])
        checkpoint = epoch.checkpoint or self._checkpoint_of(epoch)
        if checkpoint is None:
            raise self.absent(version, self.versions())
        return checkpoint, epoch.timestamp_ms

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        return absent_epoch(self, version, versions)

    def version_of(self, checkpoint: CompletedCheckpoint, timestamp_ms: int) -> StateVersion:
        """Build the version of the state from `checkpoint`, which may hold only some barriers of
        its epoch."""
        version, schema = checkpoint.epoch, self._schema(checkpoint)
        handles = tuple(
            handle
            for barrier in checkpoint.barriers
            for handle in barrier.handles
            if handle.epoch >= schema.since
        )
        return StateVersion(
            info=VersionInfo(version, timestamp_ms),
            shape=self._shape(schema),
            changes=tuple(h for h in handles if h.epoch == version and h.kind == "changelog"),
            state=handles,
            base=checkpoint.barriers[0].base_epoch,
            now_ms=checkpoint.batch_ms(),
        )

    def barrier_times(self, directory: EpochDirectory) -> dict[BarrierName, int]:
        """The barriers of an epoch and run, each with its publication time (ms since 1970)."""
        infos = list_named(self.store, str(directory), layout.parse_barrier)
        return {name: info.modified_ms for name, info in infos.items()}

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        return StateFileStore(self.store).read(handle, key_groups)

    def _completed_in(self, directory: EpochDirectory) -> CompletedCheckpoint | None:
        whole = self._listed.manifests.get(directory) or self._without_manifest(directory)
        if whole is None:
            return None
        with suppress(CorruptObjectError):
            return whole.checkpoint or self._checkpoint_of(whole)
        return None

    def _checkpoint_of(self, epoch: _WholeEpoch) -> CompletedCheckpoint | None:
        """Read a checkpoint; None if it was deleted since the listing. Raises
        CorruptObjectError."""
        with suppress(ObjectMissingError, PartialEpochError):
            return self._reader.whole_of(epoch.directory, epoch.manifests)
        return None

    def _timeline(
        self, manifests: Mapping[EpochDirectory, _WholeEpoch]
    ) -> Iterator[tuple[int, _WholeEpoch]]:
        """The whole epochs of the live timeline, newest first; see run_lineage.

        Raises ContradictingRunsError if the newest epochs are not certain.
        """
        written = {*manifests, *self.published.epoch_directories()}
        begun = self._starts.names_of(directory.run_number for directory in written)
        lineage = lineage_of(begun, written)
        if lineage.rivals:
            begun = self._starts.listed_anew()  # a driver may have noted which run Spark committed
            lineage = lineage_of(begun, written)
        if lineage.contradiction is not None:
            raise contradicting(self.url, lineage.contradiction)
        self._listed = _ListedEpochs(
            begun, manifests, frozenset(written), lineage.epochs, lineage.rivals
        )
        oldest = min((directory.epoch for directory in manifests), default=-1)
        last_whole: int | None = None
        cleaned = False
        for directory in lineage.epochs:
            if directory.epoch == last_whole:
                continue
            whole_epoch = manifests.get(directory)
            if whole_epoch is None and not (cleaned and directory.epoch < oldest):
                whole_epoch = self._without_manifest(directory)
                # Retention deletes barriers, too, but leaves the directories of needed files.
                cleaned = whole_epoch is None and directory.epoch < oldest
            if whole_epoch is not None:
                last_whole = directory.epoch
                yield directory.epoch, whole_epoch

    def _uncertain(self) -> int | None:
        """The newest epoch if several runs completed it with different changes, else None."""
        pairs = combinations(self._listed.rivals, 2)
        return next(
            (newer.epoch for newer, older in pairs if self.are_same(newer, older) is False), None
        )

    def _without_manifest(self, directory: EpochDirectory) -> _WholeEpoch | None:
        times = self.barrier_times(directory)
        if not _may_be_aligned(times):
            return None
        epoch = _WholeEpoch(directory, max(times.values()))
        try:
            checkpoint = self._checkpoint_of(epoch)
        except CorruptObjectError:
            return epoch
        return None if checkpoint is None else replace(epoch, checkpoint=checkpoint)

    def _shape(self, schema: StateSchema) -> StateShape:
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
            expires=schema.ttl_ms is not None,
        )

    def _schema(self, checkpoint: CompletedCheckpoint) -> StateSchema:
        states = {state.name: state for barrier in checkpoint.barriers for state in barrier.states}
        # Timers are read only by their name.
        of_processor = [state for name, state in states.items() if state.kind != "timers"]
        if self.state is None and len(of_processor) == 1:
            return of_processor[0]
        if self.state not in states:
            raise StateNotFoundError(self.url, self.state, tuple(states))
        return states[self.state]


def absent_epoch(
    history: StateHistory, version: int, versions: Sequence[int]
) -> VersionNotRetainedError:
    """The error of `StateHistory.absent` for an epoch.

    An epoch that is not in the store need not be lost, because Spark may leave out an epoch. The
    epoch counts as lost if the next epoch in the store started from this epoch, or from a later
    epoch that is not in the store either.
    """
    place = bisect_left(versions, version)
    if 0 < place < len(versions):
        base = history.at(versions[place]).base
        if base is not None and base >= version:
            objects = f"the manifest of epoch {version}, or its barriers,"
            return absent_version(history.url, version, versions, objects)
    oldest, newest = min(versions, default=None), max(versions, default=None)
    return VersionNotRetainedError(history.url, version, oldest, newest)


def _may_be_aligned(names: Iterable[BarrierName]) -> bool:
    """True if the names show barriers of all subtasks of an epoch. No barrier is read."""
    subtasks = {(name.parallelism, name.subtask) for name in names}
    present = Counter(parallelism for parallelism, _ in subtasks)
    return any(count == parallelism for parallelism, count in present.items())
