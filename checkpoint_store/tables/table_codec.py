"""Encodes and decodes the JSON documents of a table. Pure. The module `document` draws the envelope
of a document. All decoders raise CorruptObjectError and UnsupportedFormatError."""

from __future__ import annotations

from checkpoint_store.files.document import Source, decode_document, encode_document
from checkpoint_store.files.document_body import (
    Body,
    body_of,
    check_handle,
    check_name,
    decode_body,
)
from checkpoint_store.tables.table_layout import (
    BatchDirectory,
    parse_batch_directory,
    parse_table_file,
)
from checkpoint_store.tables.table_version import TableCompaction, TableMetadata, TableVersion


def encode_table(metadata: TableMetadata) -> bytes:
    return encode_document("table", metadata)


def decode_table(data: bytes, source: Source) -> TableMetadata:
    return decode_document("table", data, source, lambda body: decode_body(TableMetadata, body))


def encode_version(version: TableVersion) -> bytes:
    """Encode a version. A handle in both `changes` and `state` is written once."""
    added = {handle: index for index, handle in enumerate(version.changes)}
    state = [added[handle] if handle in added else body_of(handle) for handle in version.state]
    return encode_document("table-version", body_of(version) | {"state": state})


def decode_version(data: bytes, source: Source) -> TableVersion:
    def build(body: Body) -> TableVersion:
        changes = body["changes"]
        state = [changes[entry] if isinstance(entry, int) else entry for entry in body["state"]]
        version = decode_body(TableVersion, body | {"state": state})
        for handle in (*version.changes, *version.state):
            check_handle(handle, parse_table_file)
        for writer in version.batches:
            _check_writer(writer)
        if version.owner is not None:
            _check_writer(version.owner)
        return version

    return decode_document("table-version", data, source, build)


def _check_writer(writer: str) -> None:
    """Raise ValueError unless the id of a writer can be the name of the writer's directory."""
    check_name(str(BatchDirectory(writer, 0)), parse_batch_directory)


def encode_compaction(compaction: TableCompaction) -> bytes:
    return encode_document("table-compaction", compaction)


def decode_compaction(data: bytes, source: Source) -> TableCompaction:
    def build(body: Body) -> TableCompaction:
        compaction = decode_body(TableCompaction, body)
        for name in compaction.replaces:
            check_name(name, parse_table_file)
        for handle in compaction.files:
            check_handle(handle, parse_table_file)
        return compaction

    return decode_document("table-compaction", data, source, build)
