"""A file of the state store provider: bytes verified, rows as Spark's bytes. Pure.

    "ARROW1" | schema | record batch | ... | end of stream | footer | footer length | "ARROW1"

The schema's metadata in the footer has the file's identity, the schemas of key and value, the
number of rows, the CRC-32 of each record batch (message and body), and the CRC-32 of the footer,
computed with its own eight digits as zeros. Rows may carry checksums of their own. All checks are
made before rows are returned.

The column `key` has type fixed_size_binary if all keys of the first record batch have one width. If
such a file has several record batches, it also has a column `other_key` of type binary: a record
batch with keys of any other width has all its keys in `other_key`, and nulls in `key`. The same
holds for `value` and `other_value`.
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.files.spark_schema import (
    SparkType,
    StructType,
    UnsupportedSparkTypeError,
    parse_spark_schema,
)
from checkpoint_store.provider.crc32c import CRC32C, crc32c_of_rows
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.provider_file_names import ProviderFileName

FORMAT_VERSION = 1

_MAGIC = b"ARROW1"
_HEAD_BYTES = 8
_TAIL_BYTES = 4 + len(_MAGIC)
_ROWS = ("key", "value")
_COLUMNS_OF_ROWS = ("key", "other_key", "value", "other_value")
_CHECKSUM = "checksum"
_FOOTER_CHECKSUM = "cowstate.footer_crc32"
_ROW_CHECKSUM = "cowstate.row_checksum"
_FOOTER_DIFFERS = "the checksum of its footer differs"


@dataclass(frozen=True, slots=True)
class StateSchemas:
    """The schemas of keys and values. `written_in`: the name of the file that holds the schemas."""

    key: StructType
    value: StructType
    written_in: str

    @classmethod
    def of(cls, key_schema_json: str, value_schema_json: str, written_in: str) -> StateSchemas:
        """Parse the schemas. Raises the errors of `parse_spark_schema`."""
        key, value = parse_spark_schema(key_schema_json), parse_spark_schema(value_schema_json)
        return cls(key, value, written_in)

    @property
    def layout(self) -> tuple[tuple[SparkType, ...], ...]:
        """The types of the fields of keys and values, without names. Rows with equal layouts have
        the same form in bytes."""
        return self.key.layout, self.value.layout


@dataclass(frozen=True, slots=True)
class ProviderFile:
    """A decoded file. `batches`: record batches of two columns with UnsafeRow bytes, `key` and
    `value`; a null value removes the key."""

    name: ProviderFileName
    schemas: StateSchemas
    batches: tuple[pa.RecordBatch, ...]


def decode_provider_file(data: bytes, name: ProviderFileName, source: Source) -> ProviderFile:
    """Verify and decode the file `name`. `source`: the origin of `data`, for errors. Raises
    CorruptObjectError; UnsupportedFormatError for a format of a later release; UnreadableStateError
    for an unknown type in a schema, or unknown checksums of rows."""
    try:
        stated = _metadata(data)
        _check_format(stated, source)
        _check_identity(stated, name)
        batches = _batches(data, stated)
        key, value = _unpacked(stated["cowstate.schemas"])
        return ProviderFile(name, StateSchemas.of(key, value, str(name)), batches)
    except UnsupportedSparkTypeError as error:
        raise UnreadableStateError(source.url, source.name, str(error)) from error
    except KeyError as error:
        raise source.corrupt(f"its footer has no {error}") from error
    except (TypeError, ValueError) as error:
        raise source.corrupt(str(error)) from error


def _unpacked(schemas: str) -> tuple[str, str]:
    """The schemas of key and value, as JSON. Raises ValueError."""
    try:
        key, value = zlib.decompress(base64.b64decode(schemas)).decode().split("\n")
    except zlib.error as error:
        raise ValueError(f"its schemas are not what was written: {error}") from error
    return key, value


def _metadata(data: bytes) -> dict[str, str]:
    """The schema's metadata in the footer. Raises ValueError if the footer is damaged."""
    if not data:
        raise ValueError("it is empty, as after a power failure before it was on the disk")
    try:
        pairs = pa.ipc.open_file(pa.BufferReader(data)).schema.metadata or {}
        metadata = {key.decode(): value.decode() for key, value in pairs.items()}
        digits = metadata[_FOOTER_CHECKSUM]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ValueError(_FOOTER_DIFFERS) from error
    length = int.from_bytes(data[-_TAIL_BYTES : -len(_MAGIC)], "little")
    footer = data[-_TAIL_BYTES - length : -_TAIL_BYTES]
    # pyarrow does not tell the place of the digits: try each place that has the same bytes.
    places = [found.start() for found in re.finditer(f"(?={re.escape(digits)})".encode(), footer)]
    if not any(_crc32(footer[:at] + b"0" * 8 + footer[at + 8 :]) == digits for at in places):
        raise ValueError(_FOOTER_DIFFERS)
    return metadata


def _check_format(metadata: dict[str, str], source: Source) -> None:
    version = int(metadata["cowstate.format"])
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(source.url, source.name, version, FORMAT_VERSION)
    algorithm = metadata.get(_ROW_CHECKSUM, CRC32C)
    if algorithm != CRC32C:
        problem = f"it has row checksums of {algorithm}, which this release does not know"
        raise UnreadableStateError(source.url, source.name, problem)


def _check_identity(metadata: dict[str, str], name: ProviderFileName) -> None:
    expected = {
        "kind": name.kind,
        "version": str(name.version),
        "unique": name.unique,
        "base": name.base or "",
    }
    if name.kind == "merged":
        expected["versions"] = str(name.versions)
    if name.partitions is not None:
        expected["former_partitions"] = str(name.former)
        expected["partitions"] = str(name.partitions)
    for key, value in expected.items():
        stated = metadata[f"cowstate.{key}"]
        if stated != value:
            raise ValueError(f"it says {key} = {stated}, its name {value}")


def _batches(data: bytes, metadata: dict[str, str]) -> tuple[pa.RecordBatch, ...]:
    checksums = [text for text in metadata["cowstate.batch_crc32"].split(",") if text]
    places = _places_of_batches(data)
    if len(checksums) != len(places):
        raise ValueError(f"it has {len(places)} record batches, {len(checksums)} checksums")
    for index, ((start, end), checksum) in enumerate(zip(places, checksums, strict=True)):
        if _crc32(memoryview(data)[start:end]) != checksum:
            raise ValueError(f"record batch {index}: its checksum differs")
    batches = _decoded(data)
    has_checksums = _ROW_CHECKSUM in metadata
    rows = []
    for index, batch in enumerate(batches):
        _check_columns(batch.schema, has_checksums)
        keys, values = (_rows(batch, name) for name in _ROWS)
        if has_checksums and not crc32c_of_rows(keys, values).equals(batch[_CHECKSUM]):
            raise ValueError(f"record batch {index}: a row's checksum differs")
        rows.append(pa.record_batch([keys, values], [*_ROWS]))
    count, stated = sum(batch.num_rows for batch in rows), metadata["cowstate.rows"]
    if str(count) != stated:
        raise ValueError(f"it has {count} rows and says {stated}")
    return tuple(rows)


def _check_columns(schema: pa.Schema, has_checksums: bool) -> None:
    """Raise ValueError unless `schema` has the columns of a provider file."""
    rows = [name for name in _COLUMNS_OF_ROWS if name in _ROWS or name in schema.names]
    names = [*rows, _CHECKSUM] if has_checksums else rows
    if schema.names != names or not all(_is_binary(schema.field(name).type) for name in rows):
        columns = ", ".join(f"{column.name} {column.type}" for column in schema)
        raise ValueError(f"its columns are {columns}")


def _is_binary(column_type: pa.DataType) -> bool:
    return pa.types.is_binary(column_type) or pa.types.is_fixed_size_binary(column_type)


def _rows(batch: Any, name: str) -> Any:
    """The keys or values of a record batch, as binary."""
    rows, other = batch[name].cast(pa.binary()), f"other_{name}"
    return pc.coalesce(rows, batch[other]) if other in batch.schema.names else rows


def _decoded(data: bytes) -> list[Any]:
    index = 0
    batches = []
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data))
        for index in range(reader.num_record_batches):
            batches.append(reader.get_batch(index))
            batches[-1].validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"record batch {index} is not what was written") from error
    return batches


def _places_of_batches(data: bytes) -> list[tuple[int, int]]:
    """For each record batch (message and body), the positions of its first byte and of the byte
    after its last byte. The record batches follow the schema, one after the other."""
    source = pa.BufferReader(data)
    source.seek(_HEAD_BYTES)
    try:
        ends = [source.tell() for _ in pa.ipc.MessageReader.open_stream(source)]
    except (pa.ArrowException, OSError) as error:
        raise ValueError("its record batches are not where they were written") from error
    return [*pairwise(ends)]


def _crc32(data: bytes | memoryview) -> str:
    return f"{zlib.crc32(data):08x}"
