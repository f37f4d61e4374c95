"""Steps of an epoch that depend on time: fire timers, remove expired values.

These steps run after the step for the rows:

handleInputRows for every key with rows
handleExpiredTimer for every due timer                 time modes other than "None"
removal of expired values                              if a state has a time to live
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from spark_state.processor.epoch_steps import KEYS_AHEAD, KEYS_PER_CHECK, EpochRun, no_output
from spark_state.processor.schemas import timers_descriptor
from spark_state.state_descriptor import EVENT_TIMERS, PROCESSING_TIMERS, StateDescriptor

_EXPIRED_AT_LEAST = 10_000


UntilMs = Callable[[TimerValues], int]
"""Returns the time up to which timers are due."""


def fire_timers(timers: str, until_ms: UntilMs, run: EpochRun) -> Iterator[Any]:
    """Call `handleExpiredTimer` for each due timer, see Step, and delete the timer.

    `timers`: name of the state with the timers. The earliest timer fires first; timers of the same
    time fire in the order of the keys. The step looks up the due timers before the first timer
    fires. So a timer that is registered during the step for a past time fires in the next epoch. A
    timer that is deleted during the step still fires. Source: Spark's own operator.
    """
    handle_timer, timer_values = run.processor.handleExpiredTimer, run.timer_values
    due = run.backend.due_timers(timers, until_ms(timer_values))
    held = run.backend.timers(timers)
    shown_keys = run.key_columns.all_shown([timer.key for timer in due])
    run.call.begin("handleExpiredTimer", has_key=True)
    for number, (timer, key) in enumerate(zip(due, shown_keys, strict=True)):
        if not number % KEYS_PER_CHECK:
            run.check()
            if not number % KEYS_AHEAD:
                ahead = due[number : number + KEYS_AHEAD]
                run.backend.read_ahead([t.key for t in ahead], [t.key_group for t in ahead])
        run.backend.set_current_key(timer.key, timer.key_group)
        output = handle_timer(key, timer_values, ExpiredTimerInfo(timer.time_ms))
        if output is None:
            raise no_output(run, f"handleExpiredTimer returned None for key {timer.key!r}")
        yield from run.row_form.output_of_key(timer.key, output)
        held.delete(timer.time_ms)


def remove_expired(run: EpochRun) -> Iterator[Any]:
    """Remove expired values, at most twice as many as the epoch has changes, plus a constant (I7).

    An expired value is invisible, so a removal may happen in a later epoch. With this limit, the
    removals keep pace with any stream. Yields nothing.
    """
    run.check()
    run.call.end()
    run.backend.remove_expired(_EXPIRED_AT_LEAST + 2 * run.backend.number_of_changes())
    return iter(())


DUE_TIMERS: Mapping[str, tuple[str, UntilMs]] = {
    "ProcessingTime": (PROCESSING_TIMERS, TimerValues.getCurrentProcessingTimeInMs),
    "EventTime": (EVENT_TIMERS, TimerValues.getCurrentWatermarkInMs),
}
"""For each time mode with timers: the state with the timers, and the time up to which timers are
due."""


def timers_of(time_mode: str) -> tuple[StateDescriptor, ...]:
    """Return the state with the timers of a time mode; no state in time mode "None"."""
    due = DUE_TIMERS.get(time_mode)
    return () if due is None else (timers_descriptor(due[0]),)
