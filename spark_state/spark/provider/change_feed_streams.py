"""Patches of PySpark for streams of `format("cowstate")`; `spark_state.configure` applies the
patches.

Reading: a stream always returns changes, which have other columns than the rows of a batch read.
But Spark asks a Python source for its columns before Spark says if the read is a batch or a stream.
So the patched reader sets the option `readChangeFeed` for every stream.

Writing: a stream has no partitions. Spark silently drops `partitionBy` and `clusterBy` before a
Python source sees the call, so the patched writer refuses both.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from spark_state.errors import ConfigurationError
from spark_state.spark.session.replaced_methods import replace_once

FORMAT = "cowstate"
CHANGE_FEED_OPTION = "readChangeFeed"
_MARK = "_cowstate_knows"
_ASKED = "_cowstate_asked"
_LAYOUTS = ("partitionBy", "clusterBy")


def let_streams_read_changes(readers: Any = DataStreamReader) -> None:
    """Make `readStream.format("cowstate")` set readChangeFeed, in this process. `readers`: the
    class of readers; Spark Connect has its own class. Safe to call again."""
    replace_once(readers, "format", _MARK, _reading_changes)


def _reading_changes(spark_format: Any) -> Any:
    @wraps(spark_format)
    def format_and_option(self: DataStreamReader, source: str) -> DataStreamReader:
        reader: DataStreamReader = spark_format(self, source)
        return reader.option(CHANGE_FEED_OPTION, "true") if source.lower() == FORMAT else reader

    return format_and_option


def refuse_partitions_of_streams(writers: Any = DataStreamWriter) -> None:
    """Make writers of streams refuse `partitionBy` and `clusterBy` for `format("cowstate")`, in
    this process. `writers`: the class of writers; Spark Connect has its own class. Safe to call
    again."""
    for name in ("format", *_LAYOUTS):
        replace_once(writers, name, _MARK, _noting)


def _noting(method: Any) -> Any:
    """Wrap a method of the writer. The wrapper raises ConfigurationError if the stream is to be
    partitioned. A user may call the methods in any order, so the wrapper notes the arguments of
    each call."""

    @wraps(method)
    def noted(self: DataStreamWriter, *arguments: Any, **named: Any) -> DataStreamWriter:
        writer: DataStreamWriter = method(self, *arguments, **named)
        asked: dict[str, tuple[Any, ...]] = vars(writer).setdefault(_ASKED, {})
        asked[method.__name__] = (*arguments, *named.values())
        layout = next((layout for layout in _LAYOUTS if layout in asked), None)
        if layout and str(asked.get("format", ("",))[0]).lower() == FORMAT:
            raise ConfigurationError(
                f"{layout} is not for streams into cowstate tables, which keep their rows by key. "
                "Leave it out"
            )
        return writer

    return noted
