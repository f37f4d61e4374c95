"""A processor with operator state, and the content of the state after an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from spark_state.operator_state.list_operator_state import ListOperatorState
from tests.support.operators.subtasks import Host
from tests.support.processors.processors import Processor


class NotesValues(Processor):
    """Processor that appends each value to a list state of the subtask, and replaces the union
    state by the last value.

    Emits Row(key, rows, total): the number of items in the list and in the union at the start of
    the epoch. A negative value raises ValueError after the append. A value of 0 is not appended.
    """

    def init(self, handle: Any) -> None:
        self._noted = handle.getListOperatorState("noted", "value bigint")
        self._counts = handle.getUnionOperatorState("counts", "subtasks bigint")
        self._at_start = len([*self._noted.get()]), len([*self._counts.get()])

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.value:
                self._noted.appendValue((row.value,))
                self._counts.put([(row.value,)])
            if row.value < 0:
                raise ValueError(f"a negative value: {row.value}")
        yield Row(key=key[0], rows=self._at_start[0], total=self._at_start[1])


@dataclass(frozen=True)
class Held:
    """The operator state of a subtask after an epoch."""

    noted: list[int]
    counts: list[int]


def held_by(host: Host) -> Held:
    """The operator state of the host's subtask of NotesValues."""
    assert host.session is not None
    backend = host.session.operator_state.backend

    def values(name: str) -> list[int]:
        (meta_info,) = [m for m in host.spec.processor.operator_states if m.name == name]
        state = backend.register(meta_info)
        assert isinstance(state, ListOperatorState)
        return [value for (value,) in state.get()]

    return Held(values("noted"), values("counts"))
