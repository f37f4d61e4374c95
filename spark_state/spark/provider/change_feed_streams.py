"""Patches of PySpark for streams of `format("cowstate")`; `spark_state.configure` applies the
patches.

Reading: a stream gives changes without an option. Spark asks a Python source for its columns before
Spark says if the read is a batch or a stream. So the source cannot return the columns of changes
for streams only, and needs the option `readChangeFeed`. Every stream needs the option, so the
patched reader sets the option.

Writing: a stream has no partitions. Spark silently drops `partitionBy` and `clusterBy` before a
Python source sees the call, so the patched writer refuses both.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from spark_state.errors import ConfigurationError

FORMAT = "cowstate"
CHANGE_FEED_OPTION = "readChangeFeed"
_MARK = "_cowstate_knows"
_ASKED = "_cowstate_asked"
_LAYOUTS = ("partitionBy", "clusterBy")


def let_streams_read_changes(readers: Any = DataStreamReader) -> None:
    """Make `readStream.format("cowstate")` set readChangeFeed, in this process. `readers`: the
    class of readers; Spark Connect has its own class. Safe to call again."""
    spark_format: Any = readers.format
    if hasattr(spark_format, _MARK):
        return

    @wraps(spark_format)
    def format_and_option(self: DataStreamReader, source: str) -> DataStreamReader:
        reader: DataStreamReader = spark_format(self, source)
        return reader.option(CHANGE_FEED_OPTION, "true") if source.lower() == FORMAT else reader

    setattr(format_and_option, _MARK, True)
    readers.format = format_and_option


def refuse_partitions_of_streams(writers: Any = DataStreamWriter) -> None:
    """Make streams into tables refuse partitions, in this process. `writers`: the class of writers;
    Spark Connect has its own class. Safe to call again."""
    for name in ("format", *_LAYOUTS):
        method = getattr(writers, name)
        if not hasattr(method, _MARK):
            setattr(writers, name, _noting(name, method))


def _noting(name: str, method: Any) -> Any:
    """Wrap a method of the writer to note its arguments, because the methods come in any order."""

    @wraps(method)
    def noted(self: DataStreamWriter, *arguments: Any, **named: Any) -> DataStreamWriter:
        writer: DataStreamWriter = method(self, *arguments, **named)
        asked: dict[str, tuple[Any, ...]] = vars(writer).setdefault(_ASKED, {})
        asked[name] = (*arguments, *named.values())
        layout = next((layout for layout in _LAYOUTS if layout in asked), None)
        if layout and str(asked.get("format", ("",))[0]).lower() == FORMAT:
            raise ConfigurationError(
                f"{layout} is not for streams into cowstate tables, which keep their rows by key. "
                "Leave it out"
            )
        return writer

    setattr(noted, _MARK, True)
    return noted
