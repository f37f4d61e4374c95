"""Steps of an epoch's run. A step calls one method of the processor, for example `handleInputRows`
for all keys with rows, and yields the output.

The plan of an operator has only the steps that the operator needs, and each step has its own loop
over the keys. So timers, for example, cost nothing in an operator without timers.
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
    """The processor's method that runs now. If a later attempt of the subtask waits too long for
    this attempt, the error of the later attempt names the method.

    `method`: name of the method; None before `init` and after `close`. `has_key`: True if each call
    is for one key, the backend's current key. A step calls `begin` before the loop over the keys,
    not for each key.
    """

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
    """Objects that the steps of an epoch's run use. Before the first step, `backend.begin` and
    `processor.init` have been called.

    - `inputs`: inputs of the epoch by name, see EpochInputs.
    - `row_form`: form of the rows that the processor gets and yields.
    - `timer_values`: time that the processor sees.
    - `check`: raises to stop the run. A step calls `check` every few hundred keys.
    - `call`: a step notes here which method of the processor will run next.

    Before a step calls the processor for a key, the step calls `backend.set_current_key`.
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
begins only after the caller has taken all output of the preceding step."""


def handle_initial_state(run: EpochRun) -> Iterator[Any]:
    """Call `handleInitialState(key, initialState, timerValues)` for each row of the initial state;
    in the pandas form, for each DataFrame. Keys come in order. Yields nothing.

    Only the first epoch has initial rows; if the first epoch runs again, the rows come again.
    Spark's own operator calls `handleInitialState` for a key right before `handleInputRows` for the
    same key. The result is the same, because states and timers belong to a key.
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
    """Return the error for a method of the processor that returned None instead of an iterator.
    `call`: text for the message, such as "handleInputRows returned None"."""
    return OutputRowError(
        f"{type(run.processor).__name__}.{call}; return an iterator of {run.row_form.output_name}, "
        "iter([]) for none"
    )
