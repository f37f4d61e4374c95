"""Rows dealt out to numbered parts, in memory up to a bound, then in files on the local disk.

    add        rows, with the part number of each row; held in memory, and then spilled
    rows_of    all rows of a part, in the order of the calls of `add`

See spill_file for the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_state.spill_file import SpillFile

PartNumbers = npt.NDArray[np.integer[Any]]

MOST_PARTS = 256
_HELD_BYTES = 64 << 20


class SpilledParts:
    """Rows with one schema, dealt out to fewer than MOST_PARTS parts. Used in a `with` statement.
    Raises OSError, which names the directory, if the disk refuses rows."""

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._most_bytes = held_bytes
        self._bytes = 0
        self._held: list[tuple[pa.Table, PartNumbers]] = []
        self._files: dict[int, SpillFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add(self, rows: pa.Table, parts: PartNumbers) -> None:
        """Add rows. `parts`: the part number of each row. Not called after `rows_of`."""
        self._held.append((rows, parts))
        self._bytes += rows.nbytes
        if self._bytes > self._most_bytes:
            self._spill()

    def _spill(self) -> None:
        for rows, parts in self._held:
            order = np.argsort(parts, kind="stable")
            numbers, starts = np.unique(parts[order], return_index=True)
            ends = [*starts[1:].tolist(), len(order)]
            dealt = rows.take(order)
            for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
                if number not in self._files:
                    self._files[number] = SpillFile(tempfile.gettempdir(), _telling_where)
                self._files[number].write(rows.schema, [dealt.slice(start, end - start)])
        self._held, self._bytes = [], 0

    def rows_of(self, part: int) -> pa.Table | None:
        """Return all rows of a part; None if there are no rows."""
        tables = self._files[part].tables() if part in self._files else []
        for rows, parts in self._held:
            if (parts == part).any():
                tables.append(rows.filter(pa.array(parts == part)))
        return pa.concat_tables(tables) if tables else None


@contextmanager
def _telling_where(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{folder} does not take rows that are too many for the memory of a "
            f"process: {error.strerror}. Make space there, or set TMPDIR to another directory",
        ) from error
