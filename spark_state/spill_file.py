"""Tables on the local disk, which the operating system reads on access.

    (Arrow stream of a table)*

The file has no name, so nothing remains after the file is closed or the process is killed. The
tables are mapped, not read: the operating system takes the pages back when memory is short.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

import pyarrow as pa

from spark_state.errors import StateHostError

_ROWS_PER_BATCH = 16_384
_LIMIT = "spark.cowstate.maxMemoryMB"

TellingWhere = Callable[[str], AbstractContextManager[None]]
"""Function of a directory's name. Returns a context manager that raises an error with this name if
the local disk refuses bytes."""


@contextmanager
def telling_where(what: str, limit: str, folder: str) -> Iterator[None]:
    """Raise StateHostError if the local disk refuses bytes. `what`: "the input" or "the output".
    `limit`: the setting that sends `what` to the disk."""
    try:
        yield
    except OSError as error:
        raise StateHostError(
            f"{what} of an epoch takes more memory than it may ({limit}), and {folder} does not "
            f"take the rest: {error}. Nothing was changed. Make space there, or set "
            "spark.cowstate.rocksdb.localDirectory to a directory that Spark's user may write on "
            "all executors, or raise the limit"
        ) from error


_telling_where_input_went = partial(telling_where, "the input", _LIMIT)


class SpillFile:
    """Tables in a file without a name in `folder`. Write all tables before the call of `tables`.

    `telling(folder)`: returns a context manager that raises an error with the folder's name if the
    disk refuses bytes.
    """

    def __init__(self, folder: str, telling: TellingWhere = _telling_where_input_went) -> None:
        self._telling = partial(telling, folder)
        with self._telling():
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close
        self._ends: list[int] = []
        self._mapped: mmap.mmap | None = None

    def write(self, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
        """Write one table, which consists of `parts`."""
        with self._telling():
            with pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema) as writer:
                for part in parts:
                    writer.write_table(part, max_chunksize=_ROWS_PER_BATCH)
            self._file.flush()
            self._ends.append(self._file.tell())

    def tables(self) -> list[pa.Table]:
        """Return the written tables, in order. The tables stay readable after `close`."""
        if not self._ends:
            return []
        self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = pa.py_buffer(self._mapped)
        starts = [0, *self._ends]
        parts = [whole.slice(a, b - a) for a, b in zip(starts, self._ends, strict=False)]
        return [pa.ipc.open_stream(pa.BufferReader(part)).read_all() for part in parts]

    def forget_pages(self) -> None:
        """Release the pages of the tables from the process's memory. A later access loads the pages
        again."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Close the file. The operating system frees the disk space when the last table of the file
        is dropped."""
        self._mapped = None
        with suppress(OSError):  # write has already reported refused bytes
            self._file.close()
