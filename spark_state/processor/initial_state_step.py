"""The step of an initial state: its rows reach the processor before any other rows.

The rows are there in the first epoch only, and again if that one runs again. In every other epoch
the step finds none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_state.processor.epoch_inputs import INITIAL_ROWS
from spark_state.processor.epoch_steps import KEYS_PER_CHECK, EpochRun
from spark_state.processor.key_grouping import KeyedInput


def handle_initial_state(run: EpochRun) -> Iterator[Any]:
    """Call `handleInitialState(key, initialState, timerValues)` for each row of the initial state,
    or each DataFrame of a key in the pandas form, in the order of keys. It has no output.

    Spark's own operator does so right before it handles the rows of the key. States and timers are
    of a key, so that makes no difference to them.
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
