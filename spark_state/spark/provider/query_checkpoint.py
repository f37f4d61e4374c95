"""Reads the facts about a streaming query's state from its checkpoint. Changes nothing.

    metadata                            the query's id
    offsets/<batch>                     the plan of a batch: "conf" of its JSON has the state
                                        store's provider class
    commits/<batch>                     exists when the batch is done
    state/<operator>/_metadata/metadata the operator's name and stores
    state/<operator>/_metadata/v2/<batch>   the same for a transformWithState, and its states
    state/<operator>/<partition>[/<store>]/   the provider's files; if the files are in an object
                                        store, state/cowstate-store.json names the object store

Batch n starts from the state of version n and makes version n + 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_file_names import parse_provider_file
from checkpoint_store.provider.spark_log_entry import newest_version_folder, parse_log_entry
from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.provider.checkpoint_files import CheckpointFile, CheckpointFiles
from spark_state.spark.provider.placed_state import PlacedState, place_of
from spark_state.spark.provider.provider_class import PROVIDER_KEY
from spark_state.spark.session.operator_configuration import STORE_KEY

_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
LOGS_AND_STATE = ("offsets", "commits", "state")
DEFAULT_STORE = "default"
PARTITIONS = "spark.sql.shuffle.partitions"
TRANSFORM_WITH_STATE = "transformWithState"
_HDFS_FILE = re.compile(r"(\d+)\.(delta|snapshot)(\.crc)?")


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A store of one partition of an operator. `prefix_columns`: the number of key columns in the
    prefix of prefix scans, 0 for none."""

    operator: int
    partition: int
    store: str
    prefix_columns: int

    @property
    def path(self) -> str:
        partition = f"state/{self.operator}/{self.partition}"
        return partition if self.store == DEFAULT_STORE else f"{partition}/{self.store}"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A file of offsets/ or commits/, or the metadata of an operator. `content`: the JSON object in
    the file's second line."""

    path: str
    text: str
    content: dict[str, Any]

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the session that planned the batch."""
        settings: dict[str, str] = self.content.get("conf", {})
        return settings

    def changed(self, changes: Mapping[str, Any]) -> str:
        """The text of the file after changes of the JSON object, without spaces in the JSON, as
        Spark writes it."""
        content = {**self.content, **changes}
        if content == self.content:
            return self.text
        lines = self.text.split("\n")
        lines[1] = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """An operator with the stores of each of its partitions. `noted`: Spark's metadata of the
    operator; `properties`: the properties of a transformWithState, None for other operators."""

    number: int
    name: str
    stores: tuple[str, ...]
    partitions: int
    directories: tuple[StoreDirectory, ...]
    noted: LogEntry
    properties: Mapping[str, Any] | None = None

    def prefix_columns(self, store: str) -> int:
        """The number of key columns in the prefix of prefix scans on a store; 0 for none."""
        return next(each.prefix_columns for each in self.directories if each.store == store)


@dataclass(frozen=True, slots=True)
class QueryCheckpoint:
    """The checkpoint of a stopped query.

    `planned`, `committed`: the last planned and the last committed batch; `offsets`: the entries of
    the last two batches, by batch; `commit`: the entry of the last committed batch; `files`: the
    files of offsets/, commits/ and state/; `version`: the version of the state from which the next
    batch starts; `place`: the object store with the state on cowstate, None if the state is in the
    checkpoint; `stored`: the lengths of the files in the object store, by path.
    """

    url: str
    query_id: str
    planned: int
    committed: int | None
    offsets: dict[int, LogEntry]
    commit: LogEntry | None
    operators: tuple[StatefulOperator, ...]
    files: tuple[CheckpointFile, ...] = field(repr=False)
    place: StatePlace | None = None
    stored: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def version(self) -> int:
        return 0 if self.committed is None else self.committed + 1

    @property
    def settings(self) -> dict[str, str]:
        return self.offsets[self.planned].settings

    @property
    def provider(self) -> str:
        return self.settings[PROVIDER_KEY]

    @property
    def partitions(self) -> int | None:
        """The number of partitions of the next batch; None if an old Spark did not write the
        number."""
        noted = self.settings.get(PARTITIONS)
        return None if noted is None else int(noted)

    @property
    def directories(self) -> tuple[StoreDirectory, ...]:
        return tuple(directory for operator in self.operators for directory in operator.directories)

    @property
    def state_ids(self) -> dict[str, list[list[str]]] | None:
        """The ids of the state by operator, partition and store, in checkpoint format 2; else
        None."""
        ids: dict[str, list[list[str]]] | None
        ids = self.commit.content.get("stateUniqueIds") if self.commit else None
        return ids or None

    def state_id(self, directory: StoreDirectory) -> str | None:
        if self.state_ids is None:
            return None
        (operator,) = (each for each in self.operators if each.number == directory.operator)
        index = operator.stores.index(directory.store)
        return self.state_ids[str(operator.number)][directory.partition][index]

    def files_of_version(self, directory: str, *, hdfs: bool) -> dict[CheckpointFile, int]:
        """The files in the directory of a store, with their versions: files of
        HDFSBackedStateStoreProvider if `hdfs`, files of cowstate if not."""
        versions: dict[CheckpointFile, int] = {}
        for file in self.files:
            if file.folder != directory:
                continue
            match = _HDFS_FILE.fullmatch(file.name)
            own = parse_provider_file(file.name)
            if hdfs and match:
                versions[file] = int(match[1])
            elif not hdfs and own:
                versions[file] = own.version
        return versions


def list_files(files: CheckpointFiles) -> tuple[CheckpointFile, ...]:
    """List the files that a running query changes: offsets/, commits/ and state/."""
    return tuple(file for folder in LOGS_AND_STATE for file in files.below(folder))


def read_checkpoint(files: CheckpointFiles) -> QueryCheckpoint:
    """Read a checkpoint. Raises ConfigurationError if the location is not the checkpoint of a query
    with state, UnsupportedOperationError for a checkpoint of an unknown form, and
    UnsupportedFormatError for a file of a later Spark version."""
    if not files.exists("metadata") or not files.exists("offsets"):
        raise ConfigurationError(
            f"{files.url} is not a checkpoint: metadata or offsets/ is missing. Pass the query's "
            "checkpointLocation"
        )
    listed = list_files(files)
    planned = _batches(listed, "offsets")
    committed = _batches(listed, "commits")
    if not planned:
        raise ConfigurationError(
            f"{files.url} has no batch yet: start the query with the provider and the {PARTITIONS} "
            "that you want"
        )
    last_committed = committed[-1] if committed else None
    _check_order(files, planned[-1], last_committed)
    offsets = {number: _read_log(files, f"offsets/{number}") for number in planned[-2:]}
    for entry in offsets.values():
        if PROVIDER_KEY not in entry.settings:
            raise UnsupportedOperationError(
                f"{files.url_of(entry.path)} does not set {PROVIDER_KEY}: Spark before 2.3 wrote "
                "it. Run the query once with the Spark that you use now"
            )
    _check_partitions(files, offsets, last_committed)
    commit = None if last_committed is None else _read_log(files, f"commits/{last_committed}")
    query_id = json.loads(files.read_text("metadata"))["id"]
    place = place_of(files)
    stored = {} if place is None else PlacedState(files, place).lengths()
    partitions = offsets[planned[-1]].settings.get(PARTITIONS)
    operators = tuple(_operators(files, stored, listed, last_committed, partitions))
    if not operators:
        raise ConfigurationError(
            f"{files.url} has no state of Spark's own operators, so there is nothing to adopt or "
            "to rescale. Operators of spark_state.transform_with_state are on cowstate already: "
            f"their state is in {STORE_KEY}, below {query_id}, and they take the parallelism with "
            "which the query starts"
        )
    return QueryCheckpoint(
        url=files.url,
        query_id=query_id,
        planned=planned[-1],
        committed=last_committed,
        offsets=offsets,
        commit=commit,
        operators=operators,
        files=listed,
        place=place,
        stored=stored,
    )


def check_encoding(checkpoint: QueryCheckpoint) -> None:
    """Raise UnsupportedOperationError unless the rows of the state are Spark's UnsafeRow."""
    encoding = checkpoint.settings.get(_ENCODING, "unsaferow")
    if encoding.lower() != "unsaferow":
        raise UnsupportedOperationError(
            f"{checkpoint.url} was created with {_ENCODING} = {encoding}, but cowstate reads only "
            "unsaferow. Start the query with a new checkpoint"
        )


def provider_of_last_batch(files: CheckpointFiles) -> str | None:
    """The provider class in the newest entry of the offset log; None if the entry has no
    provider."""
    last = _last_planned(files)
    return None if last is None else last[1].settings.get(PROVIDER_KEY)


def partitions_of_last_batch(files: CheckpointFiles) -> tuple[int, int] | None:
    """The last planned batch and its number of partitions; None if there is no batch, or if the
    batch's entry has no number of partitions."""
    last = _last_planned(files)
    if last is None or PARTITIONS not in last[1].settings:
        return None
    return last[0], int(last[1].settings[PARTITIONS])


def _last_planned(files: CheckpointFiles) -> tuple[int, LogEntry] | None:
    """The last planned batch and its entry; None if there is no batch."""
    planned = max(files.numbers("offsets"), default=None)
    return None if planned is None else (planned, _read_log(files, f"offsets/{planned}"))


def last_batches(files: CheckpointFiles) -> tuple[int | None, int | None]:
    """The last planned and the last committed batch; each None if there is no such batch."""
    return max(files.numbers("offsets"), default=None), max(files.numbers("commits"), default=None)


def _batches(listed: Sequence[CheckpointFile], folder: str) -> list[int]:
    return sorted(
        int(file.name) for file in listed if file.folder == folder and file.name.isdecimal()
    )


def _check_order(files: CheckpointFiles, planned: int, committed: int | None) -> None:
    """Raise UnsupportedOperationError unless the last planned batch is the last committed batch, or
    the batch right after the last committed batch."""
    first_open = 0 if committed is None else committed + 1
    if planned in (first_open, first_open - 1):
        return
    done = "none is" if committed is None else f"batch {committed} is the last that is"
    raise UnsupportedOperationError(
        f"{files.url}: batch {planned} is the last that was planned, and {done} committed, so it "
        "is not certain from which state the query continues. Run the query once with its present "
        "provider (without asynchronous progress tracking), or restore the missing files of "
        "offsets/ and commits/ from a copy"
    )


def _check_partitions(
    files: CheckpointFiles, offsets: dict[int, LogEntry], committed: int | None
) -> None:
    """Raise UnsupportedOperationError for an uncommitted batch of Spark's offline repartitioning:
    such a batch has another number of partitions than the batch before."""
    newest = max(offsets)
    numbers = {entry.settings.get(PARTITIONS) for entry in offsets.values()} - {None}
    if len(numbers) > 1 and newest != committed:
        raise UnsupportedOperationError(
            f"{files.url_of(offsets[newest].path)} belongs to an offline repartitioning that is "
            f"not finished. Delete this file and offsets/.{newest}.crc, or finish it with Spark"
        )


def _read_log(files: CheckpointFiles, path: str) -> LogEntry:
    """Read an entry of a log. Raises UnsupportedOperationError, and UnsupportedFormatError for the
    version of a later Spark."""
    text = files.read_text(path)
    try:
        content = parse_log_entry(text.encode(), Source(files.url, path))
    except CorruptObjectError as error:
        raise UnsupportedOperationError(
            f"{files.url_of(path)} cannot be read: {error.problem}. Restore it from a copy"
        ) from error
    return LogEntry(path, text, content)


def _operators(
    files: CheckpointFiles,
    stored: Mapping[str, int],
    listed: Sequence[CheckpointFile],
    last_committed: int | None,
    partitions: str | None,
) -> list[StatefulOperator]:
    operators = []
    for number in sorted(int(name) for name in files.folders("state") if name.isdecimal()):
        there = {int(name) for name in files.folders(f"state/{number}") if name.isdecimal()}
        prefix = f"state/{number}/"
        there |= {int(path.split("/")[2]) for path in stored if path.startswith(prefix)}
        noted = _noted(files, number, listed, last_committed)
        counts = (int(store["numPartitions"]) for store in noted.content["stateStoreInfo"])
        expected = 1 if there == {0} else int(partitions or max(counts))
        if last_committed is not None and not {*range(expected)} <= there:
            raise UnsupportedOperationError(
                f"{files.url_of(f'state/{number}')} has only partitions {sorted(there)} of "
                f"{expected}. Restore the missing ones from a copy"
            )
        operators.append(_operator(number, noted, expected))
    return operators


def _operator(number: int, noted: LogEntry, partitions: int) -> StatefulOperator:
    """An operator with the partitions that the next batch reads. The checkpoint may have more
    directories, from a time when the query had more partitions."""
    content = noted.content
    stores = content["stateStoreInfo"]
    properties = content.get("operatorPropertiesJson")
    return StatefulOperator(
        number,
        content["operatorInfo"]["operatorName"],
        tuple(store["storeName"] for store in stores),
        partitions,
        tuple(
            StoreDirectory(number, partition, store["storeName"], store["numColsPrefixKey"])
            for partition in range(partitions)
            for store in stores
        ),
        noted,
        None if properties is None else json.loads(properties),
    )


def _noted(
    files: CheckpointFiles,
    number: int,
    listed: Sequence[CheckpointFile],
    last_committed: int | None,
) -> LogEntry:
    """Spark's metadata of an operator in the last committed batch."""
    path = f"state/{number}/_metadata/metadata"
    if any(file.path == path for file in listed):
        return _read_log(files, path)
    newest_version_folder(files.folders(f"state/{number}/_metadata"), Source(files.url, path))
    versions = _batches(listed, f"state/{number}/_metadata/v2")
    if not versions:
        raise UnsupportedOperationError(
            f"{files.url_of(path)} is missing: an older Spark wrote this checkpoint. Run the query "
            "once with its present provider on the Spark that you use now: it writes the file"
        )
    newest = max((v for v in versions if v <= (last_committed or 0)), default=versions[0])
    noted = _read_log(files, f"state/{number}/_metadata/v2/{newest}")
    name = str(noted.content["operatorInfo"]["operatorName"])
    if not name.startswith(TRANSFORM_WITH_STATE):
        raise UnsupportedOperationError(
            f"operator {number} of {files.url}, {name}, keeps its state in column families (a join "
            "of state format 3 or 4), which only RocksDBStateStoreProvider has"
        )
    return noted
