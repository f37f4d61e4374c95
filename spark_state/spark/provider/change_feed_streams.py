"""What `spark_state.configure` lets streams of `format("cowstate")` do, and not do.

A stream that is read gives changes without being told so. Spark asks a source written in Python for
its columns before it says whether it is for a batch or for a stream, so the source itself cannot
give the columns of changes to streams only; the option `readChangeFeed` tells it. A stream always
needs it, so the reader of the session sets it.

A stream that is written has no partitions. Spark drops `partitionBy` and `clusterBy` on the way to
a source of its newer interface, without a word, so the writer of the session refuses them.
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


def let_streams_read_changes() -> None:
    """From now on in this process; may be called again."""
    spark_format: Any = DataStreamReader.format
    if hasattr(spark_format, _MARK):
        return

    @wraps(spark_format)
    def format_and_option(self: DataStreamReader, source: str) -> DataStreamReader:
        reader: DataStreamReader = spark_format(self, source)
        return reader.option(CHANGE_FEED_OPTION, "true") if source.lower() == FORMAT else reader

    setattr(format_and_option, _MARK, True)
    DataStreamReader.format = format_and_option  # type: ignore[method-assign]


def refuse_partitions_of_streams() -> None:
    """From now on in this process; may be called again."""
    for name in ("format", *_LAYOUTS):
        method = getattr(DataStreamWriter, name)
        if not hasattr(method, _MARK):
            setattr(DataStreamWriter, name, _noting(name, method))


def _noting(name: str, method: Any) -> Any:
    """A method of the writer that remembers what it was asked with. Methods come in any order."""

    @wraps(method)
    def noted(self: DataStreamWriter, *arguments: Any, **named: Any) -> DataStreamWriter:
        writer: DataStreamWriter = method(self, *arguments, **named)
        asked: dict[str, tuple[Any, ...]] = vars(writer).setdefault(_ASKED, {})
        asked[name] = (*arguments, *named.values())
        layout = next((layout for layout in _LAYOUTS if layout in asked), None)
        if layout and str(asked.get("format", ("",))[0]).lower() == FORMAT:
            raise ConfigurationError(
                f"{layout} is not for streams into cowstate tables: their rows are kept by key. "
                "Leave it out"
            )
        return writer

    setattr(noted, _MARK, True)
    return noted
