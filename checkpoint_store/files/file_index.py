"""The index of a file of rows: the bytes of each record batch. Pure.

The pieces of a file follow one another from the first byte on, one piece for each record batch with
rows:

    piece 0                 piece 1              tail
    "ARROW1" schema, batch  batch           ...  batch without rows, with the index; footer "ARROW1"

Each piece has its own checksum in the index. The index is in the tail, and the tail's checksum is
in the handle.
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
        """The byte after the piece's last byte."""
        return self.start + self.length


def index_of(data: memoryview, ends: Sequence[int]) -> bytes:
    """Return the index of a file that begins with `data`. `ends`: the end of each piece, in
    bytes."""
    starts = [0, *ends[:-1]]
    pieces = [
        [end - start, hashlib.sha256(data[start:end]).hexdigest()]
        for start, end in zip(starts, ends, strict=True)
    ]
    return json.dumps(pieces, separators=(",", ":")).encode()


def decode_index(index: bytes) -> list[FilePiece]:
    """Return the pieces of a file. Raises TypeError or ValueError."""
    entries = [(int(length), str(checksum)) for length, checksum in json.loads(index)]
    ends = accumulate(length for length, _ in entries)
    return [
        FilePiece(end - length, length, checksum)
        for end, (length, checksum) in zip(ends, entries, strict=True)
    ]


def runs_of(
    pieces: Sequence[FilePiece], is_needed: Callable[[int], bool]
) -> Iterable[list[FilePiece]]:
    """Return the needed pieces, consecutive pieces together in one list, because one request reads
    a list. `is_needed` takes the number of a piece."""
    run: list[FilePiece] = []
    for number, piece in enumerate(pieces):
        if is_needed(number):
            run.append(piece)
        elif run:
            yield run
            run = []
    if run:
        yield run
