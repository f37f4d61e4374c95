"""Spark's own files in the checkpoint of a query with state, beside the provider's files.

    metadata                             the id of the query
    commits/<batch>                      a committed batch; in checkpoint format 2, the ids of the
                                         states that the batch made
    state/<operator>/_metadata/metadata  the operator's stores, and their numbers of partitions
    state/<operator>/0/[<store>/]_metadata/schema   the columns of a store, see parse_state_schema

Spark's files are in the checkpoint, wherever the files of the stores are.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files.document import Source
from checkpoint_store.object_names import COMMITS, QUERY
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.provider_errors import (
    NotACheckpointError,
    StoreNotFoundError,
    UnreadableStateError,
)
from checkpoint_store.provider.provider_state import StorePartition
from checkpoint_store.provider.provider_store import DEFAULT_STORE
from checkpoint_store.provider.spark_log_entry import (
    check_version,
    newest_version_folder,
    parse_log_entry,
)

_LIMIT = "globalLimit"
_ID_DIGITS = 16
_COLUMN_FAMILIES = "its store has column families, which only RocksDBStateStoreProvider has"
_NEWEST_SCHEMA = 3
_ENTRIES_OF_COMMIT = {"nextBatchWatermarkMs", "stateUniqueIds", "sinkMetadataMap"}


def query_id_of(checkpoint: ObjectStore) -> str:
    """The id of the query. Raises ObjectMissingError, CorruptObjectError."""
    try:
        return str(json.loads(checkpoint.get(QUERY))["id"])
    except (LookupError, TypeError, ValueError) as error:
        problem = f"not what Spark wrote of a query: {error!r}"
        raise CorruptObjectError(checkpoint.url, QUERY, problem) from error


def listed_commits(checkpoint: ObjectStore) -> dict[int, ObjectInfo]:
    """List Spark's commit log: the entries by batch, ascending. Costs one listing."""
    commits = {info.name.rpartition("/")[2]: info for info in checkpoint.list(COMMITS)}
    return {int(name): commits[name] for name in sorted(filter(_is_number, commits), key=int)}


def committed_batches(checkpoint: ObjectStore) -> list[int]:
    """The batches in Spark's commit log, ascending, at least one. Raises NotACheckpointError if the
    log is empty."""
    batches = [*listed_commits(checkpoint)]
    if not batches:
        raise NotACheckpointError(checkpoint.url)
    return batches


@dataclass(frozen=True, slots=True)
class StorePartitions:
    """The number of partitions of a store. `noted`: the number that Spark has noted in the file
    `noted_in`. `directories`: the number that the partition directories show, which is the highest
    number of a directory plus 1."""

    noted: int
    directories: int
    noted_in: str


def partitions_of(
    checkpoint: ObjectStore, files: ObjectStore, operator: int, store_name: str
) -> StorePartitions:
    """Count the partitions of a store. `files`: the object store with the files of the stores.

    Spark notes the number of partitions of its shuffles, even for an operator that has only one
    partition: a limit, or an aggregation without keys.

    Raises StoreNotFoundError, which names the existing stores, CorruptObjectError,
    UnsupportedFormatError, and UnreadableStateError for an operator with column families.
    """
    operators = {
        number: _operator(checkpoint, files, number) for number in _numbers(checkpoint, "state")
    }
    stores = operators[operator].stores if operator in operators else {}
    if store_name not in stores:
        present = tuple((number, tuple(other.stores)) for number, other in operators.items())
        raise StoreNotFoundError(checkpoint.url, operator, store_name, present)
    noted, directories = stores[store_name], operators[operator].directories
    if noted > 1 and directories == [0]:
        key_schema_json, _ = state_schemas(checkpoint, operator, store_name)
        takes_all_rows = not json.loads(key_schema_json)["fields"]
        if takes_all_rows or operators[operator].name == _LIMIT:
            noted = 1
    return StorePartitions(noted, max(directories, default=-1) + 1, _noted_in(operator))


def _noted_in(operator: int) -> str:
    return f"state/{operator}/_metadata/metadata"


def state_schemas(checkpoint: ObjectStore, operator: int, store_name: str) -> tuple[str, str]:
    """Read the schemas of keys and values, as JSON. Raises ObjectMissingError, CorruptObjectError,
    and UnreadableStateError for a store with column families."""
    name = schema_file_of(operator, store_name)
    return parse_state_schema(checkpoint.get(name), Source(checkpoint.url, name))


def schema_file_of(operator: int, store_name: str) -> str:
    return f"{StorePartition(operator, 0, store_name).directory}/_metadata/schema"


def committed_ids(checkpoint: ObjectStore, batch: int, operator: int) -> set[str] | None:
    """The ids of the states of an operator's stores after a batch; None in checkpoint format 1.

    Each id is drawn for one store and partition, so a set of ids is enough. After an adoption from
    RocksDB the commit log has the UUIDs of RocksDB's states; the adopted states have the first 16
    digits of these UUIDs. Raises ObjectMissingError if the batch is not committed,
    CorruptObjectError, UnsupportedFormatError.
    """
    name = f"{COMMITS}/{batch}"
    commit = parse_log_entry(checkpoint.get(name), Source(checkpoint.url, name))
    try:
        # A damaged entry must not look like a missing entry.
        if unknown := commit.keys() - _ENTRIES_OF_COMMIT:
            raise ValueError(f"unknown entries {', '.join(sorted(unknown))}")
        ids = commit.get("stateUniqueIds")
        if ids is None:
            return None
        return {id.replace("-", "")[:_ID_DIGITS] for stores in ids[str(operator)] for id in stores}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptObjectError(checkpoint.url, name, f"not a commit: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator: the name, None if not noted; the noted number of partitions of each store; and
    the directories of partitions."""

    name: str | None
    stores: Mapping[str, int]
    directories: list[int]


def _operator(checkpoint: ObjectStore, files: ObjectStore, operator: int) -> _Operator:
    """Read an operator from the note that Spark wrote at the beginning of the query. Early releases
    of Spark wrote no note. Then the stores are found in the directories: a single store has its
    files in the partition's directory; several stores have a directory each, below the partition's
    directory."""
    directory = f"state/{operator}"
    name = _noted_in(operator)
    source = Source(checkpoint.url, name)
    partitions = _numbers(files, directory)
    try:
        noted = parse_log_entry(checkpoint.get(name), source)
    except ObjectMissingError:
        folders = checkpoint.list_directories(name.rpartition("/")[0])
        names = [path.rpartition("/")[2] for path in folders]
        if newest_version_folder(names, source) is not None:
            raise UnreadableStateError(checkpoint.url, directory, _COLUMN_FAMILIES) from None
        partition = f"{directory}/{min(partitions, default=0)}"
        unnamed = _visible([info.name for info in files.list(partition)])
        named = [] if unnamed else _visible(files.list_directories(partition))
        count = max(partitions, default=-1) + 1
        return _Operator(None, dict.fromkeys(named or [DEFAULT_STORE], count), partitions)
    try:
        infos = noted["stateStoreInfo"]
        stores = {str(store["storeName"]): int(store["numPartitions"]) for store in infos}
        return _Operator(str(noted["operatorInfo"]["operatorName"]), stores, partitions)
    except (LookupError, TypeError, ValueError) as error:
        raise source.corrupt(f"not what Spark wrote of an operator: {error!r}") from error


def _visible(paths: Sequence[str]) -> list[str]:
    names = (path.rpartition("/")[2] for path in paths)
    return sorted(name for name in names if not name.startswith((".", "_")))


def _numbers(checkpoint: ObjectStore, directory: str) -> list[int]:
    names = [path.rpartition("/")[2] for path in checkpoint.list_directories(directory)]
    return sorted(int(name) for name in names if _is_number(name))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def parse_state_schema(data: bytes, source: Source) -> tuple[str, str]:
    """Parse the schemas of key and value, as JSON, in the file `_metadata/schema`:

        "v1" | key schema | value schema
        "v2" | number of pieces, int | piece | ... of the key schema | the same of the value schema
        "v3" | the columns of each column family

    Texts have the format of Java's DataOutput.writeUTF: two bytes of length, then modified UTF-8.
    Spark keeps the file of the first run. Source: StateSchemaCompatibilityChecker and SchemaWriter
    of Spark.

    Raises CorruptObjectError, UnreadableStateError for a store with column families, and
    UnsupportedFormatError for a version of a later Spark.
    """
    content = io.BytesIO(data)
    try:
        version = _text(content)
        check_version(version, _NEWEST_SCHEMA, source)
        if version == "v3":
            raise UnreadableStateError(source.url, source.name, _COLUMN_FAMILIES)
        read = _text if version == "v1" else _pieces
        schemas = read(content), read(content)
        if content.read(1):
            raise ValueError("bytes after its end")
    except (ValueError, struct.error) as error:
        raise source.corrupt(f"not a state schema of Spark: {error}") from error
    return schemas


def _pieces(content: io.BytesIO) -> str:
    (count,) = struct.unpack(">i", content.read(4))
    return "".join([_text(content) for _ in range(count)])


def _text(content: io.BytesIO) -> str:
    (length,) = struct.unpack(">H", content.read(2))
    data = content.read(length)
    if len(data) != length:
        raise ValueError("it is cut")
    # Modified UTF-8 has two bytes for NUL, and two surrogates for a character of four bytes.
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
