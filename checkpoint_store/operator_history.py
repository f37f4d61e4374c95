"""The epochs of one state of a Python operator, as readers see them. See state_history.

A version is an epoch whose manifest is there, on the live timeline: after a rollback the epochs
that were rolled back are not. When it was committed is what the store says of its manifest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store import checkpoint_layout as layout
from checkpoint_store.checkpoint_layout import ManifestName
from checkpoint_store.checkpoint_retention import live_timeline
from checkpoint_store.completed_checkpoint import CompletedCheckpoint, StateSchema
from checkpoint_store.errors import StateNotFoundError, VersionNotRetainedError
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.object_store import ObjectStore
from checkpoint_store.published_objects import PublishedObjects
from checkpoint_store.row_fold import ADDED_COLUMNS
from checkpoint_store.state_file import decode_state_file
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.state_history import StateShape, StateVersion, VersionInfo
from checkpoint_store.store_metadata import StoreMetadata
from checkpoint_store.table_schema import column_names


@dataclass
class OperatorHistory:
    """The StateHistory of one state; `state` may be None if the operator has only one."""

    store: ObjectStore
    metadata: StoreMetadata
    state: str | None
    _manifests: dict[int, tuple[ManifestName, int]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """See StateHistory."""
        return self.store.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory."""
        return self.metadata.max_parallelism

    def versions(self) -> list[int]:
        """See StateHistory."""
        times: dict[ManifestName, int] = {}
        for info in self.store.list(layout.MANIFESTS):
            name = layout.parse_manifest(info.name)
            if name is not None and name.length == info.length:
                times[name] = int((info.modified or 0) * 1000)
        timeline = reversed(live_timeline(times))
        self._manifests = {name.epoch: (name, times[name]) for name in timeline}
        return list(self._manifests)

    def at(self, version: int) -> StateVersion:
        """See StateHistory. Raises StateNotFoundError if the operator has no such state then."""
        if version not in self._manifests:
            self.versions()
        found = self._manifests.get(version)
        if found is None:
            epochs = self._manifests
            raise VersionNotRetainedError(
                self.url, version, min(epochs, default=None), max(epochs, default=None)
            )
        name, timestamp_ms = found
        checkpoint = PublishedObjects(self.store).read_manifest(name)
        handles = tuple(handle for one in checkpoint.barriers for handle in one.handles)
        return StateVersion(
            info=VersionInfo(version, timestamp_ms),
            shape=self._shape(checkpoint),
            changes=tuple(h for h in handles if h.epoch == version and h.kind == "changelog"),
            state=handles,
        )

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory."""
        data = PublishedObjects(self.store).read(handle.name, handle.epoch)
        return decode_state_file(data, handle, key_groups, self.url)

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
        )

    def _schema(self, checkpoint: CompletedCheckpoint) -> StateSchema:
        states = {one.name: one for barrier in checkpoint.barriers for one in barrier.states}
        if self.state is None and len(states) == 1:
            return next(iter(states.values()))
        if self.state not in states:
            raise StateNotFoundError(self.url, self.state, tuple(states))
        return states[self.state]
