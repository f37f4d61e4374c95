"""Step of an initial state: the processor gets the initial rows before any other rows.

Only the first epoch has initial rows, also when the first epoch runs again. In every other epoch
the step finds no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_state.processor.epoch_steps import KEYS_PER_CHECK, EpochRun
from spark_state.processor.input.epoch_inputs import INITIAL_ROWS
from spark_state.processor.input.key_grouping import KeyedInput


def handle_initial_state(run: EpochRun) -> Iterator[Any]:
    """Call `handleInitialState(key, initialState, timerValues)` in the order of the keys, for each
    row of the initial state, or for each DataFrame of a key in the pandas form. Yields nothing.

    Spark's own operator makes the call right before the rows of the same key. The result is the
    same, because states and timers belong to a key.
    """
    initial = run.inputs[INITIAL_ROWS]
    for keyed in initial.by_key(run.key_columns):
        _handle_rows(run, keyed, initial.layout.row_names)
    return iter(())


def _handle_rows(run: EpochRun, keyed: KeyedInput, names: tuple[str, ...]) -> None:
    rows_by_key = run.row_form.rows_by_key(keyed, names)
    handle_state, timer_values = run.processor.handleInitialState, run.timer_values
    shown_keys = run.key_columns.all_shown(keyed.keys)
    run.call.begin("handleInitialState", has_key=True)
    keys = zip(keyed.keys, keyed.key_groups, shown_keys, rows_by_key, strict=True)
    for number, (key, key_group, shown_key, rows) in enumerate(keys):
        if not number % KEYS_PER_CHECK:
            run.check()
        run.backend.set_current_key(key, key_group)
        for row in rows:
            handle_state(shown_key, row, timer_values)
