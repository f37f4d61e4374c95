"""Encodes and decodes the JSON documents of a table. Pure. See document."""

from __future__ import annotations

from checkpoint_store.files.document import (
    Body,
    Source,
    decode_document,
    decode_handle,
    decode_name,
    decode_number,
    decode_text,
    encode_document,
    encode_handle,
)
from checkpoint_store.states.event_time import WriterWatermarks
from checkpoint_store.tables.table_layout import (
    BatchDirectory,
    parse_batch_directory,
    parse_table_file,
)
from checkpoint_store.tables.table_version import TableCompaction, TableMetadata, TableVersion


def encode_table(metadata: TableMetadata) -> bytes:
    body = {
        "table_id": metadata.table_id,
        "key_schema_json": metadata.key_schema_json,
        "max_parallelism": metadata.max_parallelism,
        "sequence_by": metadata.sequence_by,
        "ignore_null_updates": metadata.ignore_null_updates,
    }
    return encode_document("table", body)


def decode_table(data: bytes, source: Source) -> TableMetadata:
    """Decode `table.json`. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> TableMetadata:
        sequence_by, ignores = body["sequence_by"], body["ignore_null_updates"]
        if not isinstance(ignores, bool):
            raise TypeError(f"{ignores!r} is not a boolean")
        return TableMetadata(
            table_id=decode_text(body["table_id"]),
            key_schema_json=decode_text(body["key_schema_json"]),
            max_parallelism=decode_number(body["max_parallelism"]),
            sequence_by=None if sequence_by is None else decode_text(sequence_by),
            ignore_null_updates=ignores,
        )

    return decode_document("table", data, source, build)


def encode_version(version: TableVersion) -> bytes:
    """Encode a version. A handle in both `changes` and `state` is written once."""
    added = {handle: index for index, handle in enumerate(version.changes)}
    body = {
        "version": version.version,
        "owner": version.owner,
        "run": version.run,
        "timestamp_ms": version.timestamp_ms,
        "schema_json": version.schema_json,
        "batches": dict(version.batches),
        "changes": [encode_handle(handle) for handle in version.changes],
        "state": [
            added[handle] if handle in added else encode_handle(handle) for handle in version.state
        ],
        "watermarks": {
            "parallelism": version.watermarks.parallelism,
            "by_subtask": {str(k): ms for k, ms in sorted(version.watermarks.by_subtask.items())},
            "least_ms": version.watermarks.least_ms,
        },
        "failed_upkeep": version.failed_upkeep,
    }
    return encode_document("table-version", body)


def decode_version(data: bytes, source: Source) -> TableVersion:
    """Decode a version. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> TableVersion:
        owner, run = body["owner"], body["run"]
        changes = tuple(decode_handle(handle, parse_table_file) for handle in body["changes"])
        return TableVersion(
            version=decode_number(body["version"]),
            owner=None if owner is None else _decode_writer(owner),
            run=None if run is None else decode_text(run),
            timestamp_ms=decode_number(body["timestamp_ms"]),
            schema_json=decode_text(body["schema_json"]),
            batches={_decode_writer(k): decode_number(v) for k, v in dict(body["batches"]).items()},
            changes=changes,
            state=tuple(
                changes[entry] if isinstance(entry, int) else decode_handle(entry, parse_table_file)
                for entry in body["state"]
            ),
            watermarks=_decode_watermarks(body["watermarks"]),
            failed_upkeep=decode_number(body["failed_upkeep"]),
        )

    return decode_document("table-version", data, source, build)


def _decode_writer(value: object) -> str:
    """The id of a writer, which is the name of the writer's directory."""
    writer = decode_text(value)
    decode_name(str(BatchDirectory(writer, 0)), parse_batch_directory)
    return writer


def _decode_watermarks(body: Body) -> WriterWatermarks:
    by_subtask = {int(k): decode_number(ms) for k, ms in dict(body["by_subtask"]).items()}
    least_ms = body["least_ms"]
    return WriterWatermarks(
        decode_number(body["parallelism"]),
        by_subtask,
        None if least_ms is None else decode_number(least_ms),
    )


def encode_compaction(compaction: TableCompaction) -> bytes:
    body = {
        "version": compaction.version,
        "replaces": list(compaction.replaces),
        "files": [encode_handle(handle) for handle in compaction.files],
    }
    return encode_document("table-compaction", body)


def decode_compaction(data: bytes, source: Source) -> TableCompaction:
    """Decode a compaction. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> TableCompaction:
        return TableCompaction(
            version=decode_number(body["version"]),
            replaces=tuple(decode_name(name, parse_table_file) for name in body["replaces"]),
            files=tuple(decode_handle(handle, parse_table_file) for handle in body["files"]),
        )

    return decode_document("table-compaction", data, source, build)
