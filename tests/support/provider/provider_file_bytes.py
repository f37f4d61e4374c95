"""Writes provider files with pyarrow, for tests that damage files or forge their metadata."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkpoint_store.provider.crc32c import crc32c_of_rows
from checkpoint_store.provider.provider_file_names import ProviderFileName

Row = tuple[int, str | None]
TAIL_BYTES = 10
COLUMNS = ("key", "other_key", "value")


def unique(number: int) -> str:
    return f"{number:016x}"


def changelog(version: int, base: int | None = None, generation: int = 1) -> ProviderFileName:
    """The name of a changelog. The changelog's unique is its version. The base is the version
    before unless `base` is given."""
    before = version - 1 if base is None else base
    return ProviderFileName(version, generation, unique(version), unique(before) if before else "0")


def snapshot(version: int, generation: int = 1, attempt: int = 1) -> ProviderFileName:
    return ProviderFileName(version, generation, unique(version), None, attempt=unique(attempt))


def rescaled(
    version: int, former: int, partitions: int, base: str, number: int = 0x100
) -> ProviderFileName:
    """The name of a rescaled file in place of `base`. The file's unique is `number` plus the
    version."""
    made, attempt = unique(number + version), unique(number)
    return ProviderFileName(
        version, number >> 7, made, base, attempt=attempt, former=former, partitions=partitions
    )


def merged(version: int, versions: int, generation: int = 1) -> ProviderFileName:
    """The name of the file that merges the changelogs of the last `versions` versions up to
    `version`."""
    upon = changelog(version, version - versions, generation)
    return replace(upon, versions=versions, attempt=unique(generation))


def schema_json(name: str, type_name: str) -> str:
    field = {"name": name, "type": type_name, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


def schemas_of(value_json: str, key_json: str = schema_json("number", "long")) -> dict[str, str]:
    """The entry for the schemas in a file's metadata."""
    packed = zlib.compress(f"{key_json}\n{value_json}".encode())
    return {"cowstate.schemas": base64.b64encode(packed).decode()}


def state_schema(key_json: str, value_json: str, version: str = "v2") -> bytes:
    """The file with a store's schemas, in Spark's format. Version 2 cuts schemas into pieces of 100
    bytes."""
    schemas = [key_json.encode(), value_json.encode()]
    if version == "v1":
        return b"".join(map(_utf, [b"v1", *schemas]))
    pieces = [
        [schema[start : start + 100] for start in range(0, len(schema), 100)] for schema in schemas
    ]
    counted = [struct.pack(">i", len(part)) + b"".join(map(_utf, part)) for part in pieces]
    return b"".join([_utf(version.encode()), *counted])


def _utf(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def key_row(number: int) -> bytes:
    return struct.pack("<2q", 0, number)


def value_row(text: str) -> bytes:
    data = text.encode()
    padded = data.ljust((len(data) + 7) // 8 * 8, b"\0")
    return struct.pack("<2q", 0, 16 << 32 | len(data)) + padded


def footer_begin(data: bytes) -> int:
    """The position of the footer."""
    end = len(data) - TAIL_BYTES
    begin: int = end - struct.unpack_from("<i", data, end)[0]
    return begin


def value_place(data: bytes, key: bytes) -> int:
    """The position of a metadata value in the footer of a file that the provider wrote. The
    provider writes the value right before its key."""
    begin = footer_begin(data)
    metadata = pa.ipc.open_file(pa.BufferReader(data)).schema.metadata or {}
    return data.rindex(metadata[key], begin, data.index(key, begin))


def batch_places(data: bytes) -> list[tuple[int, int]]:
    """The first byte of each record batch, and the byte after its last."""
    source = pa.BufferReader(data)
    source.seek(8)
    return [*pairwise([source.tell() for _ in pa.ipc.MessageReader.open_stream(source)])]


def row_sums(rows: Sequence[Row]) -> list[int]:
    """The checksums of rows."""
    sums: list[int] = crc32c_of_rows(*_columns(rows)).to_pylist()
    return sums


def file_bytes(
    name: ProviderFileName,
    rows: Sequence[Row],
    forged: Mapping[str, str] | None = None,
    sums: Sequence[int] | None = None,
) -> bytes:
    """A file of rows (number, text), in batches of two rows. Text None means removed. The keys have
    one width, as all of them have in a file of the provider. With `sums`, the rows carry
    checksums."""
    keys, values = _columns(rows)
    arrays = [keys.cast(pa.binary(len(key_row(0)))), pa.nulls(len(rows), pa.binary()), values]
    columns = [pa.field(name, array.type) for name, array in zip(COLUMNS, arrays, strict=True)]
    metadata = {
        "cowstate.format": "1",
        "cowstate.kind": name.kind,
        "cowstate.version": str(name.version),
        "cowstate.unique": name.unique,
        "cowstate.base": name.base or "",
        **schemas_of(schema_json("text", "string")),
        "cowstate.rows": str(len(rows)),
        "cowstate.footer_crc32": "#" * 8,
    }
    if name.versions > 1:
        metadata["cowstate.versions"] = str(name.versions)
    if name.partitions is not None:
        metadata["cowstate.former_partitions"] = str(name.former)
        metadata["cowstate.partitions"] = str(name.partitions)
    if sums is not None:
        columns.append(pa.field("checksum", pa.int32(), nullable=False))
        arrays.append(pa.array(sums, pa.int32()))
        metadata["cowstate.row_checksum"] = "crc32c"
    table = pa.table(arrays, schema=pa.schema(columns))
    unsummed = _written(table, {**metadata, "cowstate.batch_crc32": ""})
    of_batches = [zlib.crc32(unsummed[start:end]) for start, end in batch_places(unsummed)]
    metadata["cowstate.batch_crc32"] = ",".join(f"{checksum:08x}" for checksum in of_batches)
    return sealed(_written(table, {**metadata, **(forged or {})}))


def sealed(data: bytes) -> bytes:
    """The file with the checksum of the footer filled in."""
    begin = footer_begin(data)
    metadata = pa.ipc.open_file(pa.BufferReader(data)).schema.metadata or {}
    place = data.index(metadata[b"cowstate.footer_crc32"], begin)
    zeroed = data[:place] + b"0" * 8 + data[place + 8 :]
    checksum = zlib.crc32(zeroed[begin : len(data) - TAIL_BYTES])
    return zeroed[:place] + f"{checksum:08x}".encode() + zeroed[place + 8 :]


def _columns(rows: Sequence[Row]) -> list[Any]:
    keys = [key_row(number) for number, _ in rows]
    values = [text if text is None else value_row(text) for _, text in rows]
    return [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]


def _written(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    schema = table.schema.with_metadata(dict(metadata))
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_table(table.replace_schema_metadata(dict(metadata)), max_chunksize=2)
    return sink.getvalue().to_pybytes()
