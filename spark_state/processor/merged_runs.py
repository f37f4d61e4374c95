"""Runs, each sorted by key, merged into parts of whole keys: an external merge sort.

    run 1   a a b c | d e e f      heads of the runs, as many rows as a part may have
    run 2   a c c d | d d g
                    ^ no key from the first `d` on is whole in the heads: d waits for the next part
    part    a a a b c c c

Rows of a key keep their order: runs are in the order in which their rows came. If not even the
first key is whole in the heads, it becomes a part of its own, however many rows it has. Its rows
are not copied: they are slices of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_state.processor.key_grouping import InputLayout, key_order, key_starts

_LEAST_ROWS = 16
_ROWS_OF_STEP = 65_536


def merged_runs(
    runs: Sequence[pa.Table], layout: InputLayout, part_bytes: int
) -> Iterator[pa.Table]:
    """The rows of all runs in the order of their keys, in parts of whole keys; about `part_bytes`
    each if keys are not larger."""
    rows, size = sum(run.num_rows for run in runs), sum(run.nbytes for run in runs)
    part_rows = max(part_bytes * rows // size, _LEAST_ROWS) if size else rows
    rest = [run for run in runs if run.num_rows]
    while rest:
        heads = _Heads(rest, layout, part_rows)
        part, counts = heads.whole_keys()
        if not any(counts):
            part, counts = heads.first_key()
        yield part
        left = [run.slice(count) for run, count in zip(rest, counts, strict=True)]
        rest = [run for run in left if run.num_rows]


class _Heads:
    """The first rows of runs that have rows: those of the runs whose keys come next."""

    def __init__(self, runs: Sequence[pa.Table], layout: InputLayout, part_rows: int) -> None:
        self._runs = runs
        self._layout = layout
        length = max(part_rows // len(runs), _LEAST_ROWS)
        chosen = self._with_next_keys(length)
        length = max(part_rows // sum(chosen), _LEAST_ROWS)
        # The first row of a run that is not looked at says how far the others may go.
        lengths = [length if is_chosen else 1 for is_chosen in chosen]
        self._heads = [run.slice(0, n) for run, n in zip(runs, lengths, strict=True)]
        self._is_ended = [
            is_chosen and head.num_rows == run.num_rows
            for run, head, is_chosen in zip(runs, self._heads, chosen, strict=True)
        ]
        together = pa.concat_tables(self._heads)
        self._order = np.asarray(key_order(together, layout))
        self._rows = together.take(pa.array(self._order))

    def _with_next_keys(self, length: int) -> list[bool]:
        """Which runs begin with a key that is among the first `length` rows of all runs."""
        lasts = [run.slice(length - 1, 1) for run in self._runs if run.num_rows > length]
        if not lasts:
            return [True] * len(self._runs)
        probes = pa.concat_tables([*(run.slice(0, 1) for run in self._runs), *lasts])
        order = np.asarray(key_order(probes, self._layout))
        places = np.empty(len(order), np.int64)
        number_of_key = np.searchsorted(
            key_starts(probes.take(order), self._layout), np.arange(len(order)), "right"
        )
        places[order] = number_of_key
        firsts, bound = places[: len(self._runs)], places[len(self._runs) :].min()
        return [bool(first <= bound) for first in firsts]

    def whole_keys(self) -> tuple[pa.Table, list[int]]:
        """The rows of the keys that are whole in the heads; and how many each run has of them."""
        whole = self._order[: self._rows_of_whole_keys()]
        ends = np.cumsum([head.num_rows for head in self._heads])
        counts = np.bincount(np.searchsorted(ends, whole, "right"), minlength=len(ends))
        return self._rows.slice(0, len(whole)), counts.tolist()

    def _rows_of_whole_keys(self) -> int:
        """Up to the first key that a run may have more of, behind its head."""
        ends = np.cumsum([head.num_rows for head in self._heads])
        lasts = ends[~np.array(self._is_ended)] - 1
        if not len(lasts):
            return len(self._order)
        places: npt.NDArray[np.int64] = np.empty(len(self._order), np.int64)
        places[self._order] = np.arange(len(self._order))
        starts = key_starts(self._rows, self._layout)
        return int(starts[np.searchsorted(starts, places[lasts].min(), "right") - 1])

    def first_key(self) -> tuple[pa.Table, list[int]]:
        """All rows of the first key; and how many each run has of them."""
        counts = [self._rows_of(self._rows.slice(0, 1), run) for run in self._runs]
        rows = [run.slice(0, count) for run, count in zip(self._runs, counts, strict=True)]
        return pa.concat_tables(rows), counts

    def _rows_of(self, key: pa.Table, run: pa.Table) -> int:
        """How many rows a run that has no smaller key has of the key of the row `key`."""
        count = 0
        while count < run.num_rows:
            step = run.slice(count, _ROWS_OF_STEP if count else _LEAST_ROWS)
            starts = key_starts(pa.concat_tables([key, step]), self._layout)
            if len(starts) > 1:
                return count + int(starts[1]) - 1
            count += step.num_rows
        return count
