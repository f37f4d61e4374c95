"""Epochs of a processor with time, without Spark or a host: state in memory and in files."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.key_group_hash import KeyGroupAssignment
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.processor_run import Backends, ProcessorSpec, run_processor
from spark_state.processor.rows import STATE_FORMS
from tests.support.operators.snapshot_tables import tables_of
from tests.support.operators.subtasks import KEY_COLUMNS, OUTPUT, operator, table_of

GROUPS = KeyGroupRange(0, 7)
Output = list[tuple[Any, ...]]


@dataclass
class TimedEpochs:
    """A processor of rows (key, value), in a time mode."""

    processor: Any
    time_mode: str = "ProcessingTime"
    files: list[pa.Table] = field(default_factory=list)
    output: pa.Schema = OUTPUT

    def __post_init__(self) -> None:
        spec = operator(Path("unused"), time_mode=self.time_mode, processor=self.processor)
        self.spec: ProcessorSpec = replace(spec.processor, output_schema=self.output)
        self.backend = self.new_backend()

    def new_backend(self) -> HeapKeyedStateBackend:
        backend = HeapKeyedStateBackend(GROUPS, KEY_COLUMNS, STATE_FORMS)
        for state in self.spec.states:
            backend.open_table(state)
        return backend

    def run(self, rows: Sequence[tuple[str, int]], now_ms: int) -> Output:
        """The output of an epoch that is not sealed yet. `now_ms`: the clock of the time mode, that
        is the watermark in event time and the batch's time otherwise. The other clock is ahead."""
        ahead_ms = now_ms + 1_000_000
        is_event_time = self.time_mode == "EventTime"
        shown = TimerValues(ahead_ms, now_ms) if is_event_time else TimerValues(now_ms, ahead_ms)
        plan = replace(self.spec.run_plan, shown_time=lambda _: shown)
        spec = replace(self.spec, run_plan=plan)
        processor = pickle.loads(self.spec.pickled_processor)
        inputs = plan.inputs.by_name(table_of(rows, len(GROUPS)))
        backends = Backends(self.backend, OperatorStateBackend())
        with run_processor(spec, processor, backends, inputs, None, lambda: None) as spool:
            return [tuple(row.values()) for batch in spool.read() for row in batch.to_pylist()]

    def epoch(self, rows: Sequence[tuple[str, int]], now_ms: int) -> Output:
        """Run an epoch, save its changes as a file, and seal the epoch. Returns the output."""
        output = self.run(rows, now_ms)
        self.files.append(self.backend.changes())
        self.backend.seal()
        return output

    def restart(self, *, from_snapshot: bool = False) -> None:
        """Go on with the state from the files, or from a snapshot."""
        files = tables_of(self.backend.snapshot()) if from_snapshot else self.files
        self.backend = self.new_backend()
        for table in files:
            self.backend.apply(table.to_batches())

    @staticmethod
    def key_group(key: str) -> int:
        """The key group of a key."""
        return KeyGroupAssignment(["string"], len(GROUPS)).key_group((key,))
