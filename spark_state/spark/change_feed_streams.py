"""Lets `spark.readStream.format("cowstate")` read changes without being told so.

Spark asks a source written in Python for its columns before it says whether it is for a batch or
for a stream, so the source itself cannot give the columns of changes to streams only; the option
`readChangeFeed` tells it. A stream always needs it, so the reader of the session sets it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamReader

FORMAT = "cowstate"
CHANGE_FEED_OPTION = "readChangeFeed"
_MARK = "_cowstate_reads_changes"


def let_streams_read_changes() -> None:
    """From now on in this process; may be called again."""
    known: Any = DataStreamReader.format
    if hasattr(known, _MARK):
        return

    def format_and_option(self: DataStreamReader, source: str) -> DataStreamReader:
        reader: DataStreamReader = known(self, source)
        return reader.option(CHANGE_FEED_OPTION, "true") if source.lower() == FORMAT else reader

    setattr(format_and_option, _MARK, True)
    format_and_option.__doc__ = known.__doc__
    DataStreamReader.format = format_and_option  # type: ignore[method-assign]
