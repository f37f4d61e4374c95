"""The state of a store partition of the provider, and its changes, as typed Arrow tables.

Files are found by lineage, verified and applied in order; nothing is written, and no Spark is
needed. A snapshot that is damaged is passed over for the one before it and the changelogs after
that, and a damaged merged file for those it was merged of, as the provider does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    UnsupportedFormatError,
)
from checkpoint_store.files.document import Source
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.provider_errors import (
    ChangesNotKnownError,
    UnreadableStateError,
    VersionNotFoundError,
)
from checkpoint_store.provider.provider_file import ProviderFile, decode_provider_file
from checkpoint_store.provider.provider_file_names import (
    ProviderFileName,
    ProviderFiles,
    StateId,
)
from checkpoint_store.provider.unsafe_rows import MalformedRowError, decode_rows

DEFAULT_STORE = "default"

_LOG = logging.getLogger(__name__)
# The stubs of the compute functions do not take what the functions take, such as plain numbers.
pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class StorePartition:
    """A partition of a store: its operator's number, its own, and the store's name."""

    operator: int = 0
    partition: int = 0
    store_name: str = DEFAULT_STORE

    @property
    def directory(self) -> str:
        """Relative to the checkpoint."""
        directory = f"state/{self.operator}/{self.partition}"
        return directory if self.store_name == DEFAULT_STORE else f"{directory}/{self.store_name}"


def read_partition_state(
    checkpoint: ObjectStore,
    where: StorePartition,
    version: int,
    uniques: Collection[str] | None = None,
) -> pa.Table:
    """All entries of a version, with the columns of Spark's statestore reader:

        key           struct of the key's columns
        value         struct of the value's
        partition_id  int32

    `uniques` have that of the attempt that counts, as Spark's commit log says in checkpoint
    format 2; without them the attempt of the highest generation counts.

    Raises VersionNotFoundError; ObjectMissingError and CorruptObjectError for a file on the way;
    UnreadableStateError, UnsupportedFormatError.
    """
    reader = _PartitionReader(checkpoint, where)
    return reader.table(reader.restored(reader.state_at(version, uniques)))


def read_partition_changes(
    checkpoint: ObjectStore,
    where: StorePartition,
    version: int,
    uniques: Collection[str] | None = None,
) -> pa.Table:
    """What the batch that made a version changed, in its order; a key may occur more than once:

        change_type   string, "update" or "delete"
        key           struct of the key's columns
        value         struct of the value's, null for "delete"
        partition_id  int32

    `uniques` and errors as of `read_partition_state`; ChangesNotKnownError if only the state after
    that batch is there.
    """
    reader = _PartitionReader(checkpoint, where)
    changes = reader.table([reader.changelog(reader.state_at(version, uniques))], keeps_all=True)
    present = pc.is_valid(changes["value"])
    return changes.add_column(0, "change_type", pc.if_else(present, "update", "delete"))


class _PartitionReader:
    """Reads one directory as it was when it was listed."""

    def __init__(self, checkpoint: ObjectStore, where: StorePartition) -> None:
        self._checkpoint = checkpoint
        self._where = where
        listed = checkpoint.list(where.directory)
        self._files = ProviderFiles(info.name.rpartition("/")[2] for info in listed)

    def state_at(self, version: int, uniques: Collection[str] | None) -> StateId:
        state = self._files.state_at(version, uniques)
        if state is None and (rocksdb := self._files.rocksdb_file_of(version)) is not None:
            raise self._foreign(rocksdb, "RocksDBStateStoreProvider")
        if state is None:
            raise VersionNotFoundError(
                self._checkpoint.url, self._where.directory, version, (*self._files.versions,)
            )
        return state

    def changelog(self, state: StateId) -> ProviderFile:
        name = self._files.changelog_of(state)
        if name is not None:
            return self._read(name)
        lineage = self._files.lineage_of(state)
        if lineage.missing is not None:
            raise self._missing(lineage.missing)
        if lineage.foreign is not None:
            raise self._foreign(lineage.foreign)
        raise ChangesNotKnownError(
            self._checkpoint.url,
            self._where.directory,
            state.version,
            self._files.first_with_changes(),
        )

    def restored(self, state: StateId) -> list[ProviderFile]:
        """The files of a state, in order; damaged ones that others stand for are passed over."""
        damaged: dict[ProviderFileName, Exception] = {}
        while True:
            lineage = self._files.lineage_of(state, damaged.keys())
            if lineage.missing is not None:
                raise self._missing(lineage.missing) from next(iter(damaged.values()), None)
            if lineage.foreign is not None:
                raise self._foreign(lineage.foreign)
            try:
                return [self._read(name) for name in lineage.files]
            except (ObjectMissingError, CorruptObjectError, UnsupportedFormatError) as error:
                paths = {self._path(name): name for name in lineage.files}
                unusable = paths.get(error.name)
                if unusable is None or unusable.kind == "changelog":
                    raise
                _LOG.warning("a %s file is passed over: %s", unusable.kind, error)
                damaged[unusable] = error

    def table(self, files: Sequence[ProviderFile], keeps_all: bool = False) -> pa.Table:
        """The rows that count once all files are applied, or all rows, decoded."""
        newest = files[-1]
        rows = [batch for file in files for batch in file.batches]
        chosen = rows if keeps_all else _last_of_each_key(rows)
        names = [file.name for file in files for _ in file.batches]
        keys: list[Any] = []
        values: list[Any] = []
        for file in files:
            if file.layout != newest.layout:
                raise self._corrupt(file.name, f"its schemas are not those of {newest.name}")
        for name, batch in zip(names, chosen, strict=True):
            try:
                keys.append(decode_rows(batch["key"], newest.key_schema, "key"))
                values.append(decode_rows(batch["value"], newest.value_schema, "value"))
            except MalformedRowError as error:
                raise self._corrupt(name, str(error)) from error
        count = sum(len(part) for part in keys)
        key_type: Any = newest.key_schema.arrow
        value_type: Any = newest.value_schema.arrow
        columns: list[Any] = [
            pa.chunked_array(keys, key_type),
            pa.chunked_array(values, value_type),
            pa.repeat(pa.scalar(self._where.partition, pa.int32()), count),
        ]
        return pa.table(columns, ["key", "value", "partition_id"])

    def _read(self, name: ProviderFileName) -> ProviderFile:
        path = self._path(name)
        data = self._checkpoint.get(path)
        return decode_provider_file(data, name, Source(self._checkpoint.url, path))

    def _path(self, name: ProviderFileName) -> str:
        return f"{self._where.directory}/{name}"

    def _missing(self, state: StateId) -> ObjectMissingError:
        pattern = f"{state.version:019d}-*-{state.unique}-*.changelog.arrow"
        return ObjectMissingError(self._checkpoint.url, f"{self._where.directory}/{pattern}")

    def _foreign(
        self, name: str, provider: str = "HDFSBackedStateStoreProvider"
    ) -> UnreadableStateError:
        problem = f"Spark's {provider} wrote it"
        return UnreadableStateError(
            self._checkpoint.url, f"{self._where.directory}/{name}", problem
        )

    def _corrupt(self, name: ProviderFileName, problem: str) -> CorruptObjectError:
        return CorruptObjectError(self._checkpoint.url, self._path(name), problem)


def _last_of_each_key(batches: Sequence[Any]) -> list[Any]:
    """The batches without the rows whose key comes again later, and those that were removed."""
    if not batches:
        return []
    total = sum(batch.num_rows for batch in batches)
    places = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), total)), 1)
    keyed: list[Any] = [pa.chunked_array([batch["key"] for batch in batches]), places]
    last = pa.table(keyed, ["key", "place"]).group_by("key").aggregate([("place", "max")])
    counts = pc.is_in(places, value_set=last["place_max"].combine_chunks())
    kept, begin = [], 0
    for batch in batches:
        wanted = pc.and_(counts.slice(begin, batch.num_rows), pc.is_valid(batch["value"]))
        kept.append(batch.filter(wanted))
        begin += batch.num_rows
    return kept
