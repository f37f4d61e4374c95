"""Input of an epoch, if the input is larger than its share of the memory.

    rows arrive     as many rows as the memory takes -> inputs by name, each sorted by key -> a run
    all arrived     merge runs to longer runs, until all runs can be merged at once
    a step reads    merge the runs of the input, part by part

Before the first step, a subtask must know two facts about all rows: the batch's time, and the
progress of event time. Both facts are computed during the spill. Rows of broadcast streams stay in
memory, because the broadcast step sorts all rows of a stream in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from spark_state.checkpointing.watermarks import joined
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.epoch_inputs import (
    INITIAL_ROWS,
    KEYED_ROWS,
    EpochInput,
    EpochInputs,
    RowsByKey,
)
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.input.key_grouping import InputLayout, KeyedInput, grouped, sorted_by_key
from spark_state.processor.input.merged_runs import merged_runs, runs_together
from spark_state.spill_file import SpillFile

_SORTED = (KEYED_ROWS, INITIAL_ROWS)


class SpilledInput:
    """A RowsByKey whose rows are in the runs of `file`; `file` is None if there are no rows.
    `part_bytes`: approximate size of a part that `by_key` yields. If `events` is given, rows up to
    `late_watermark_ms` are left out, see EventTimes."""

    def __init__(
        self,
        file: SpillFile | None,
        layout: InputLayout,
        part_bytes: int,
        events: EventTimes | None,
        late_watermark_ms: int | None,
    ) -> None:
        self.layout = layout
        self.num_rows = 0
        self.late_rows = 0
        self._file = file
        self._part_bytes = part_bytes
        self._events = events
        self._late_watermark_ms = late_watermark_ms

    def by_key(self, key_columns: KeyColumns) -> Iterator[KeyedInput]:
        self.num_rows = self.late_rows = 0
        if self._file is None:
            return
        for part in merged_runs(self._file.tables(), self.layout, self._part_bytes):
            in_time = part
            if self._events is not None:
                in_time = self._events.without_late(part, self._late_watermark_ms)
            self.num_rows += in_time.num_rows
            self.late_rows += part.num_rows - in_time.num_rows
            if in_time.num_rows:
                yield grouped(in_time, self.layout, key_columns)
            self._file.forget_pages()


class SpilledRows:
    """Inputs of an epoch, spilled to `folder`. `events`: event times of the rows, None if the
    operator knows no time; `part_bytes`: approximate number of bytes to merge at a time;
    `batch_ms`, `reached_ms`: the batch's time, and the progress of event time, in the rows so far.
    Close after use."""

    def __init__(
        self, inputs: EpochInputs, events: EventTimes | None, folder: str, part_bytes: int
    ) -> None:
        self._inputs = inputs
        self._events = events
        self._folder = folder
        self._part_bytes = part_bytes
        self._files: dict[str, SpillFile] = {}
        self._layouts: dict[str, InputLayout] = {}
        self._in_memory: dict[str, list[pa.Table]] = {}
        self.batch_ms: int | None = None
        self.reached_ms: tuple[int | None, ...] = ()

    def spill(self, table: pa.Table) -> int:
        """Write rows of the subtask to the files, as the next run. Call in the order of arrival.
        Returns the number of bytes that stay in memory. Raises StateHostError."""
        if self.batch_ms is None:
            self.batch_ms = self._inputs.batch_ms(table)
        if self._events is not None:
            reached = self._events.reached_ms(table)
            self.reached_ms = joined(self._events.upstreams, self.reached_ms, reached)
        kept = 0
        for name, given in self._inputs.by_name(table).items():
            self._layouts[name] = given.layout
            if name not in _SORTED:
                self._in_memory.setdefault(name, []).append(given.table)
                kept += given.table.nbytes
            elif given.table.num_rows:
                in_order = sorted_by_key(given.table, given.layout)
                self._file(name).write(in_order.schema, [in_order])
        return kept

    def _file(self, name: str) -> SpillFile:
        if name not in self._files:
            self._files[name] = SpillFile(self._folder)
        return self._files[name]

    def by_name(self, late_watermark_ms: int | None) -> Mapping[str, RowsByKey]:
        """Return the inputs by name, see EpochInputs.by_name. The keyed rows contain no late
        rows."""
        inputs: dict[str, RowsByKey] = {
            name: EpochInput(_concatenated(tables), self._layouts[name])
            for name, tables in self._in_memory.items()
        }
        for name in self._layouts.keys() - inputs.keys():
            events = self._events if name == KEYED_ROWS else None
            layout = self._layouts[name]
            file = self._file_of_few_runs(name)
            inputs[name] = SpilledInput(file, layout, self._part_bytes, events, late_watermark_ms)
        return inputs

    def _file_of_few_runs(self, name: str) -> SpillFile | None:
        """Merge the runs of an input until all runs can be merged at once, and return the file."""
        file, layout = self._files.get(name), self._layouts[name]
        while file is not None and (merged := self._merged_once(file, layout)) is not None:
            file.close()
            file = self._files[name] = merged
        return file

    def _merged_once(self, file: SpillFile, layout: InputLayout) -> SpillFile | None:
        """Merge the runs to fewer and longer runs; return None if the runs are few enough to be
        merged at once."""
        runs = file.tables()
        together = runs_together(runs, self._part_bytes)
        if len(runs) <= together:
            return None
        merged = SpillFile(self._folder)
        try:
            # Merges neighbouring runs, so rows of a key stay in the order of arrival.
            for first in range(0, len(runs), together):
                some = runs[first : first + together]
                parts = merged_runs(some, layout, self._part_bytes)
                merged.write(some[0].schema, _each_forgotten(parts, file))
        except BaseException:
            merged.close()
            raise
        return merged

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def _each_forgotten(parts: Iterator[pa.Table], file: SpillFile) -> Iterator[pa.Table]:
    """Yield the parts, and release the pages of the file after each part."""
    for part in parts:
        yield part
        file.forget_pages()


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the tables. A table without rows may have no columns."""
    with_rows = [table for table in tables if table.num_rows]
    return pa.concat_tables(with_rows) if with_rows else tables[0]
