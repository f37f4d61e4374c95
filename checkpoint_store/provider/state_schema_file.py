"""The file `_metadata/schema`, in which Spark keeps the columns of a store. Pure.

    "v1" | key schema | value schema
    "v2" | number of pieces, int | piece | ... of the key schema | the same of the value schema
    "v3" | the columns of each column family

Texts have the format of Java's DataOutput.writeUTF: two bytes of length, then modified UTF-8. The
schemas are the JSON of Spark's StructType. Spark writes the file when the query begins and keeps
the file, so its names are the names of the first run. Source: StateSchemaCompatibilityChecker and
SchemaWriter of Spark.
"""

from __future__ import annotations

import io
import struct

from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.spark_log_entry import check_version

COLUMN_FAMILIES = "its store has column families, which only RocksDBStateStoreProvider has"
_NEWEST = 3


def parse_state_schema(data: bytes, source: Source) -> tuple[str, str]:
    """Parse the schemas of key and value, as JSON. `source`: the origin of `data`, for errors.
    Raises CorruptObjectError, UnreadableStateError for a store with column families, and
    UnsupportedFormatError for a version of a later Spark."""
    content = io.BytesIO(data)
    try:
        version = _text(content)
        check_version(version, _NEWEST, source)
        if version == "v3":
            raise UnreadableStateError(source.url, source.name, COLUMN_FAMILIES)
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
