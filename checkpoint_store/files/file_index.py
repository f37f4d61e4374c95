"""Which bytes of a file of rows hold which record batches. Pure.

The pieces of a file follow one another from its first byte on, one for each record batch with rows:

    piece 0                 piece 1              tail
    "ARROW1" schema, batch  batch           ...  batch without rows, with the index; footer "ARROW1"

So a piece is verified by itself, and the tail, whose checksum a handle has, verifies the index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

INDEX_METADATA = b"cowstate.index"


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some bytes of a file, from byte `start` on; `checksum`: sha256, hex."""

    start: int
    length: int
    checksum: str

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.start + self.length


def index_of(data: memoryview, ends: Sequence[int]) -> bytes:
    """The index of a file that begins with `data`, cut after these numbers of bytes."""
    starts = [0, *ends[:-1]]
    pieces = [
        [end - start, hashlib.sha256(data[start:end]).hexdigest()]
        for start, end in zip(starts, ends, strict=True)
    ]
    return json.dumps(pieces, separators=(",", ":")).encode()


def decode_index(index: bytes) -> list[FilePiece]:
    """The pieces of a file. Raises TypeError or ValueError."""
    entries = [(int(length), str(checksum)) for length, checksum in json.loads(index)]
    ends = accumulate(length for length, _ in entries)
    return [
        FilePiece(end - length, length, checksum)
        for end, (length, checksum) in zip(ends, entries, strict=True)
    ]


def runs_of(
    pieces: Sequence[FilePiece], is_needed: Callable[[int], bool]
) -> Iterable[list[FilePiece]]:
    """The needed ones of the pieces, asked for by their numbers: those that follow one another
    together, because one request reads them."""
    run: list[FilePiece] = []
    for number, piece in enumerate(pieces):
        if is_needed(number):
            run.append(piece)
        elif run:
            yield run
            run = []
    if run:
        yield run
