"""Tables on the local disk, which the operating system reads when they are looked at.

    (Arrow stream of a table)*

The file has no name, so nothing is left of it when it is closed, or when the process is killed. Its
tables are mapped, not read: the operating system takes their pages back when it needs memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from spark_state.errors import StateHostError

_ROWS_PER_BATCH = 16_384
_LIMIT = "spark.cowstate.maxMemoryMB"


@contextmanager
def telling_where(what: str, limit: str, folder: str) -> Iterator[None]:
    """Raise StateHostError for what the local disk refuses. `limit`: the setting that is why
    `what`, the input or the output, is there."""
    try:
        yield
    except OSError as error:
        raise StateHostError(
            f"{what} of an epoch takes more memory than it may ({limit}), and {folder} does not "
            f"take the rest: {error}. Nothing was changed. Make space there, or set "
            "spark.cowstate.rocksdb.localDirectory to a directory that Spark's user may write on "
            "all executors, or raise the limit"
        ) from error


class SpillFile:
    """Tables written to a file without a name in `folder`. Write all of them before `tables`.

    Raises StateHostError if the disk does not take them.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with telling_where("the input", _LIMIT, folder):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close
        self._ends: list[int] = []
        self._mapped: mmap.mmap | None = None

    def write(self, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
        """Write a table of these parts."""
        with telling_where("the input", _LIMIT, self._folder):
            with pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema) as writer:
                for part in parts:
                    writer.write_table(part, max_chunksize=_ROWS_PER_BATCH)
            self._file.flush()
            self._ends.append(self._file.tell())

    def tables(self) -> list[pa.Table]:
        """What was written, in order. It stays readable after `close`."""
        if not self._ends:
            return []
        self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = pa.py_buffer(self._mapped)
        starts = [0, *self._ends]
        parts = [whole.slice(a, b - a) for a, b in zip(starts, self._ends, strict=False)]
        return [pa.ipc.open_stream(pa.BufferReader(part)).read_all() for part in parts]

    def forget_pages(self) -> None:
        """Pages of the tables that were looked at are not memory of the process any more. Who looks
        at them again gets them again."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):  # of what the disk did not take, when it was written
            self._file.close()
