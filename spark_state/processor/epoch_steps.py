"""Steps of an epoch's run. A step calls the processor for one reason and yields the output.

The steps are chosen before the run, and each step has its own loop over keys. So work before the
rows or after the last key costs nothing in an operator without such work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.stateful_processor import TimerValues

from spark_state.errors import OutputRowError
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.processor.input.epoch_inputs import INITIAL_ROWS, KEYED_ROWS, RowsByKey
from spark_state.processor.row_form import RowForm

KEYS_PER_CHECK = 256
KEYS_AHEAD = 16 * KEYS_PER_CHECK


@dataclass(slots=True)
class RunningCall:
    """The processor's method that runs now, for the threads that wait for the result. `method`:
    None between methods. `has_key`: True if the call is for the backend's current key. A step sets
    both values once for all keys, so a call for a single key costs nothing more."""

    method: str | None = None
    has_key: bool = False

    def begin(self, method: str, *, has_key: bool = False) -> None:
        """Note that calls of `method` begin."""
        self.method, self.has_key = method, has_key

    def end(self) -> None:
        """Note that the calls have ended."""
        self.method, self.has_key = None, False


@dataclass(frozen=True, slots=True)
class EpochRun:
    """State of an epoch's run, for the steps. `processor` has run `init`; `backend.begin` was
    called.

    Before a step calls the processor for a key, the step calls `backend.set_current_key`. The step
    calls `check` every few hundred keys; `check` raises to stop the run. The step notes in `call`
    the method that will run next.
    """

    processor: Any
    backend: KeyedStateBackend[Any]
    key_columns: KeyColumns
    inputs: Mapping[str, RowsByKey]
    row_form: RowForm
    timer_values: TimerValues
    check: Callable[[], None]
    operator_states: OperatorStates
    call: RunningCall


Step = Callable[[EpochRun], Iterator[Any]]
"""Function that yields the processor's output, in the run's form of rows. Can be pickled. A step
begins after the caller has taken the output of the step before."""


def handle_initial_state(run: EpochRun) -> Iterator[Any]:
    """Call `handleInitialState(key, initialState, timerValues)` in the order of the keys, for each
    row of the initial state, or for each DataFrame of a key in the pandas form. Yields nothing.

    Only the first epoch has initial rows, also when the first epoch runs again. Spark's own
    operator makes the call right before the rows of the same key. The result is the same, because
    states and timers belong to a key.
    """
    initial = run.inputs[INITIAL_ROWS]
    handle_state, timer_values = run.processor.handleInitialState, run.timer_values
    for keyed in initial.by_key(run.key_columns):
        run.call.begin("handleInitialState", has_key=True)
        rows_by_key = run.row_form.rows_by_key(keyed, initial.layout.row_names)
        shown_keys = run.key_columns.all_shown(keyed.keys)
        keys = zip(keyed.keys, keyed.key_groups, shown_keys, rows_by_key, strict=True)
        for number, (key, key_group, shown_key, rows) in enumerate(keys):
            if not number % KEYS_PER_CHECK:
                run.check()
                if not number % KEYS_AHEAD:
                    ahead = slice(number, number + KEYS_AHEAD)
                    run.backend.read_ahead(keyed.keys[ahead], keyed.key_groups[ahead])
            run.backend.set_current_key(key, key_group)
            for row in rows:
                handle_state(shown_key, row, timer_values)
    return iter(())


def handle_input_rows(run: EpochRun) -> Iterator[Any]:
    """Call `handleInputRows` for each key with rows."""
    given = run.inputs[KEYED_ROWS]
    check, set_current_key = run.check, run.backend.set_current_key
    handle_rows, timer_values = run.processor.handleInputRows, run.timer_values
    output_of_key = run.row_form.output_of_key
    for keyed in given.by_key(run.key_columns):
        run.call.begin("handleInputRows", has_key=True)
        rows_by_key = run.row_form.rows_by_key(keyed, given.layout.row_names)
        shown_keys = run.key_columns.all_shown(keyed.keys)
        keys = zip(keyed.keys, keyed.key_groups, shown_keys, rows_by_key, strict=True)
        for number, (key, key_group, shown_key, rows) in enumerate(keys):
            if not number % KEYS_PER_CHECK:
                check()
                if not number % KEYS_AHEAD:
                    ahead = slice(number, number + KEYS_AHEAD)
                    run.backend.read_ahead(keyed.keys[ahead], keyed.key_groups[ahead])
            set_current_key(key, key_group)
            output = handle_rows(shown_key, rows, timer_values)
            if output is None:
                raise no_output(run, f"handleInputRows returned None for key {key!r}")
            yield from output_of_key(key, output)


def no_output(run: EpochRun, call: str) -> OutputRowError:
    """Return the error for a call of the processor without output. `call`: the method that
    returned None."""
    return OutputRowError(
        f"{type(run.processor).__name__}.{call}; return an iterator of {run.row_form.output_name}, "
        "iter([]) for none"
    )
