"""Merge of sorted runs into parts of whole keys: an external merge sort.

    run 1   a a b c | d e e f      left of |: heads of the runs, together as large as a part
    run 2   a c c d | d d g
                    ^ from the first `d` on, rows may be missing: d waits for the next part
    part    a a a b c c c

Rows of a key keep their order, because the runs are in the order of arrival. If even the first key
is not whole in the heads, the first key becomes a part of its own, with any number of rows. The
rows of such a part are not copied: the part consists of slices of the runs.

A head has at least one row, even if the row is larger than the run's share of a part. So a part may
exceed `part_bytes` by one row of each run. A part that is one key has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_state.processor.input.key_grouping import InputLayout, key_order, key_starts

_MOST_RUNS = 64
_ROWS_OF_HEAD = 4
_ROWS_OF_FIRST_STEP = 16
_ROWS_OF_STEP = 65_536


def merged_runs(
    runs: Sequence[pa.Table], layout: InputLayout, part_bytes: int
) -> Iterator[pa.Table]:
    """Yield the rows of all runs in the order of the keys, in parts of whole keys. A part has about
    `part_bytes`, if no key is larger."""
    most = _MostOfPart(part_bytes, _mean_row_bytes(runs))
    rest = [run for run in runs if run.num_rows]
    while rest:
        heads = _Heads(rest, layout, most)
        part, counts = heads.whole_keys()
        if not any(counts):
            part, counts = heads.first_key()
        yield part
        left = [run.slice(count) for run, count in zip(rest, counts, strict=True)]
        rest = [run for run in left if run.num_rows]


def runs_together(runs: Sequence[pa.Table], part_bytes: int) -> int:
    """Return the greatest number of runs to merge at once. With too many runs, a head has few rows
    and is read again for many parts, and each run costs time in each part."""
    return max(min(part_bytes // (_ROWS_OF_HEAD * _mean_row_bytes(runs)), _MOST_RUNS), 2)


def _mean_row_bytes(runs: Sequence[pa.Table]) -> int:
    """Return the mean number of bytes of a row."""
    rows = sum(run.num_rows for run in runs)
    return max(sum(run.nbytes for run in runs) // rows, 1) if rows else 1


@dataclass(frozen=True, slots=True)
class _MostOfPart:
    """Size limit of a part, in bytes. `row_bytes`: approximate size of a row."""

    part_bytes: int
    row_bytes: int

    def rows_of_each(self, runs: int) -> int:
        """Return the greatest number of rows that each of `runs` runs may add to a part; at least
        one."""
        return max(self.part_bytes // runs // self.row_bytes, 1)

    def head(self, run: pa.Table, runs: int) -> pa.Table:
        """Return the first rows of a run, as many as fit into the run's share of a part, but at
        least one row. `runs`: number of runs that share the part."""
        most_bytes, rows = self.part_bytes // runs, self.rows_of_each(runs)
        while rows < run.num_rows and run.slice(0, 2 * rows).nbytes <= most_bytes:
            rows *= 2
        head = run.slice(0, rows)
        while head.num_rows > 1 and head.nbytes > most_bytes:
            rows = min(head.num_rows * most_bytes // head.nbytes, head.num_rows - 1)
            head = run.slice(0, max(rows, 1))
        return head


class _Heads:
    """The next rows of all runs that still have rows, for the next part. A run whose first key may
    be in the part gives as many rows as its share of the part allows. Any other run gives only its
    first row."""

    def __init__(self, runs: Sequence[pa.Table], layout: InputLayout, most: _MostOfPart) -> None:
        self._runs = runs
        self._layout = layout
        chosen = self._with_next_keys(most.rows_of_each(len(runs)))
        # The first row of a run that is not chosen bounds the keys of the chosen runs.
        self._heads = [
            most.head(run, sum(chosen)) if is_chosen else run.slice(0, 1)
            for run, is_chosen in zip(runs, chosen, strict=True)
        ]
        self._is_ended = [
            is_chosen and head.num_rows == run.num_rows
            for run, head, is_chosen in zip(runs, self._heads, chosen, strict=True)
        ]
        self._ends = np.cumsum([head.num_rows for head in self._heads])
        together = pa.concat_tables(self._heads)
        self._order = np.asarray(key_order(together, layout))
        self._rows = together.take(pa.array(self._order))

    def _with_next_keys(self, length: int) -> list[bool]:
        """Choose the runs whose keys may be in the next part. Return True or False for each run.

        A run is chosen if the run's first key is not greater than a bound: the least of the keys in
        row number `length` of the runs with more than `length` rows. If no run has more than
        `length` rows, all runs are chosen.
        """
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
        """Return the rows of the keys that are whole in the heads, and the number of these rows in
        each run."""
        whole = self._order[: self._rows_of_whole_keys()]
        of_runs = np.searchsorted(self._ends, whole, "right")
        counts = np.bincount(of_runs, minlength=len(self._ends))
        return self._rows.slice(0, len(whole)), counts.tolist()

    def _rows_of_whole_keys(self) -> int:
        """Count the rows of the keys that are whole in the heads. If a run has rows after its head,
        the last key of the head may continue there. So only the keys before the least of these last
        keys are whole."""
        lasts = self._ends[~np.array(self._is_ended)] - 1
        if not len(lasts):
            return len(self._order)
        places: npt.NDArray[np.int64] = np.empty(len(self._order), np.int64)
        places[self._order] = np.arange(len(self._order))
        starts = key_starts(self._rows, self._layout)
        return int(starts[np.searchsorted(starts, places[lasts].min(), "right") - 1])

    def first_key(self) -> tuple[pa.Table, list[int]]:
        """Return all rows of the first key, and the number of these rows in each run."""
        counts = [self._rows_of(self._rows.slice(0, 1), run) for run in self._runs]
        rows = [run.slice(0, count) for run, count in zip(self._runs, counts, strict=True)]
        return pa.concat_tables(rows), counts

    def _rows_of(self, key: pa.Table, run: pa.Table) -> int:
        """Count the rows of a key in a run that has no smaller key. `key`: one row of the key."""
        count = 0
        while count < run.num_rows:
            step = run.slice(count, _ROWS_OF_STEP if count else _ROWS_OF_FIRST_STEP)
            starts = key_starts(pa.concat_tables([key, step]), self._layout)
            if len(starts) > 1:
                return count + int(starts[1]) - 1
            count += step.num_rows
        return count
