"""The state and the changes of a store partition, as typed Arrow tables.

The reader finds files by lineage, verifies the bytes and applies the files in order. Nothing is
written, and Spark is not needed. A damaged snapshot is passed over: an older snapshot and the
changelogs after it give the same state. In place of a damaged merged file, the reader uses the
files from which it was merged. The provider does the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
)
from checkpoint_store.provider.provider_file import ProviderFile, StateSchemas, decode_provider_file
from checkpoint_store.provider.provider_file_names import (
    ProviderFileName,
    ProviderFiles,
    StateId,
)
from checkpoint_store.provider.provider_store import DEFAULT_STORE, stores_beside
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.provider.unsafe_rows import MalformedRowError, decode_rows

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorePartition:
    """A partition of a store: the operator's number, the partition's number and the store's
    name."""

    operator: int = 0
    partition: int = 0
    store_name: str = DEFAULT_STORE

    @property
    def directory(self) -> str:
        """The directory of the files, relative to the checkpoint or to the directory in an object
        store."""
        directory = f"state/{self.operator}/{self.partition}"
        return directory if self.store_name == DEFAULT_STORE else f"{directory}/{self.store_name}"


class PartitionReader:
    """Reader of one directory, as listed when the reader was made. `query`: gives the number of
    partitions after a rescale. `files`: the index of the files."""

    def __init__(self, objects: ObjectStore, where: StorePartition, query: QueryPartitions) -> None:
        self._objects = objects
        self._query = query
        self._where = where
        self._lengths = self._listed(where)
        self.files = ProviderFiles(self._lengths)

    def _listed(self, where: StorePartition) -> dict[str, int]:
        objects = self._objects.list(where.directory)
        return {info.name.rpartition("/")[2]: info.length for info in objects}

    def sizes_at(self, version: int) -> tuple[int, int]:
        """The size of the files of a version's state, and the size of the version's changelog, in
        bytes; 0 for files that are gone. Raises UnreadableStateError if the directory has only
        files of another provider."""
        try:
            state = self.state_at(version, None)
        except ObjectMissingError:
            return 0, 0
        lineage, made = self.files.lineage_of(state), self.files.made_by_batch(state)
        changelog = None if made is None else self.files.changelog_of(made)
        if lineage.foreign is not None and changelog is None:
            raise self._foreign(lineage.foreign)
        changed = 0 if changelog is None else self._lengths[str(changelog)]
        return sum(self._lengths[str(name)] for name in lineage.files), changed

    def state_at(
        self, version: int, uniques: Collection[str] | None, partitions: int | None = None
    ) -> StateId:
        """The state that counts for a version. `uniques`: the ids of the states that may count;
        None: the state of the newest attempt that wrote all stores. `partitions`: the number of
        partitions that the state is for; None: the number that the query has. Raises
        ObjectMissingError, and UnreadableStateError for files of another provider."""
        if partitions is None and self.files.is_rescaled_at(version):
            partitions = self._query.after(version - 1)
        if uniques is None:
            uniques = self._whole_attempt(version, partitions)
        state = self.files.state_at(version, uniques, partitions)
        if state is None and (rocksdb := self.files.rocksdb_file_of(version)) is not None:
            raise self._foreign(rocksdb, "RocksDBStateStoreProvider")
        if state is None:
            name = f"{self._where.directory}/{version:019d}-*.changelog.arrow"
            raise ObjectMissingError(self._objects.url, name, version - 1)
        return state

    def _whole_attempt(self, version: int, partitions: int | None) -> list[str] | None:
        """Choose among several attempts that made a version: the newest attempt that has written
        all stores of a join. A killed attempt may have written only some of the stores. Return a
        list with the id of the chosen attempt. None if there are fewer than two attempts, or if no
        attempt has written all stores."""
        attempts = self.files.attempts_at(version, partitions)
        if len(attempts) < 2:
            return None
        for name in stores_beside(self._where.store_name):
            beside = ProviderFiles(self._listed(replace(self._where, store_name=name)))
            whole = beside.attempts_at(version, partitions)
            attempts = [unique for unique in attempts if unique in whole]
        return attempts[:1] or None

    def partitions_of_batch(self, version: int) -> int | None:
        """The number of partitions in the batch that made a version, if the version was rescaled
        after the batch. None if the version was not rescaled."""
        if not self.files.is_rescaled_at(version):
            return None
        return self.files.partitions_of_batch(self.state_at(version, None))

    def changes(self, state: StateId) -> ProviderFile:
        """Read the changes of the batch that made a state. If the query has been rescaled since the
        batch, only partitions that existed in the batch have changes."""
        # Between the batch and the last rescale the query may have lacked this partition.
        state = self.files.made_by_batch(state) or self.files.state_at(state.version) or state
        name = self.files.changelog_of(state)
        if name is not None:
            return self._read(name)
        lineage = self.files.lineage_of(state)
        if lineage.missing is not None:
            raise self._missing(lineage.missing)
        if lineage.foreign is not None:
            raise self._foreign(lineage.foreign)
        raise ChangesNotKnownError(
            self._objects.url,
            self._where.directory,
            state.version,
            self.files.first_with_changes(),
        )

    def restored(self, state: StateId) -> list[ProviderFile]:
        """Read the files of a state, in order. Damaged files are passed over if other files replace
        them."""
        damaged: dict[ProviderFileName, Exception] = {}
        while True:
            lineage = self.files.lineage_of(state, damaged.keys())
            if lineage.missing is not None:
                raise self._missing(lineage.missing) from next(iter(damaged.values()), None)
            if lineage.foreign is not None:
                raise self._foreign(lineage.foreign)
            try:
                return [self._read(name) for name in lineage.files]
            except (ObjectMissingError, CorruptObjectError, UnsupportedFormatError) as error:
                paths = {self._path(name): name for name in lineage.files}
                unusable = paths.get(error.name)
                if unusable is None or unusable.kind in ("changelog", "rescaled"):
                    raise
                _LOG.warning("a %s file is passed over: %s", unusable.kind, error)
                damaged[unusable] = error

    def state_table(self, state: StateId) -> pa.Table:
        """Read all entries of a state: `key` and `value` (structs), and `partition_id` (int32), in
        the form of Spark's statestore reader."""
        return self._table(self.restored(state))

    def changes_table(self, state: StateId) -> pa.Table:
        """Read the changes of the batch that made a state, in their order: `change_type` ("update",
        "delete"), and the columns of `state_table` with a null value for "delete". A key may occur
        repeatedly."""
        changes = self._table([self.changes(state)], keeps_all=True)
        present = pc.is_valid(changes["value"])
        return changes.add_column(0, "change_type", pc.if_else(present, "update", "delete"))

    def _table(self, files: Sequence[ProviderFile], keeps_all: bool = False) -> pa.Table:
        """The rows that count after all files are applied, or with `keeps_all` all rows; with the
        columns of the newest file."""
        schemas = files[-1].schemas
        rows = [*self.rows(files, schemas, keeps_all)]
        count = sum(len(keys) for keys, _ in rows)
        key_type: Any = schemas.key.arrow
        value_type: Any = schemas.value.arrow
        columns: list[Any] = [
            pa.chunked_array([keys for keys, _ in rows], key_type),
            pa.chunked_array([values for _, values in rows], value_type),
            pa.repeat(pa.scalar(self._where.partition, pa.int32()), count),
        ]
        return pa.table(columns, ["key", "value", "partition_id"])

    def rows(
        self, files: Sequence[ProviderFile], schemas: StateSchemas, keeps_all: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values as arrays of structs: the rows that count after all files are
        applied, or with `keeps_all` all rows. A row that removes its key has a null value. Raises
        CorruptObjectError for a file whose rows have other types than `schemas`."""
        for file in files:
            if file.schemas.layout != schemas.layout:
                raise self._corrupt(file.name, f"its schemas are not those of {schemas.written_in}")
        batches = [batch for file in files for batch in file.batches]
        names = [file.name for file in files for _ in file.batches]
        chosen = batches if keeps_all else _last_of_each_key(batches)
        for name, batch in zip(names, chosen, strict=True):
            try:
                yield (
                    decode_rows(batch["key"], schemas.key, "key"),
                    decode_rows(batch["value"], schemas.value, "value"),
                )
            except MalformedRowError as error:
                raise self._corrupt(name, str(error)) from error

    def _read(self, name: ProviderFileName) -> ProviderFile:
        path = self._path(name)
        data = self._objects.get(path)
        return decode_provider_file(data, name, Source(self._objects.url, path))

    def _path(self, name: ProviderFileName) -> str:
        return f"{self._where.directory}/{name}"

    def _missing(self, state: StateId) -> ObjectMissingError:
        pattern = f"{state.version:019d}-*-{state.unique}-*.changelog.arrow"
        return ObjectMissingError(self._objects.url, f"{self._where.directory}/{pattern}")

    def _foreign(
        self, name: str, provider: str = "HDFSBackedStateStoreProvider"
    ) -> UnreadableStateError:
        problem = f"Spark's {provider} wrote it"
        return UnreadableStateError(self._objects.url, f"{self._where.directory}/{name}", problem)

    def _corrupt(self, name: ProviderFileName, problem: str) -> CorruptObjectError:
        return CorruptObjectError(self._objects.url, self._path(name), problem)


def _last_of_each_key(batches: Sequence[Any]) -> list[Any]:
    """The batches with only the last row of each key, and without removed keys."""
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
