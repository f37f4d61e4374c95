"""Steps of an epoch's run for an ArrowStatefulProcessor. Each call handles many keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from spark_state.errors import ConfigurationError
from spark_state.keyed_state.keyed_state_backend import Due
from spark_state.processor.arrow.keyed_batch import ExpiredTimers, KeyedBatch, Keys, keyed_batch
from spark_state.processor.blocks import BlockSize, blocks
from spark_state.processor.epoch_steps import EpochRun, no_output
from spark_state.processor.input.epoch_inputs import INITIAL_ROWS, KEYED_ROWS
from spark_state.processor.timed_steps import UntilMs


def handle_input_batches(size: BlockSize, run: EpochRun) -> Iterator[Any]:
    """Call `handleInputBatch` for all rows, see Step. `size`: the greatest number of rows and of
    bytes in one call."""
    for batch in _batches(run, KEYED_ROWS, size):
        run.call.begin("handleInputBatch")
        output = run.processor.handleInputBatch(batch, run.timer_values)
        yield from _checked(run, "handleInputBatch", output)


def handle_initial_batches(size: BlockSize, run: EpochRun) -> Iterator[Any]:
    """Call `handleInitialBatch` for the rows of an initial state, see Step. Yields nothing."""
    for batch in _batches(run, INITIAL_ROWS, size):
        run.call.begin("handleInitialBatch")
        output = run.processor.handleInitialBatch(batch, run.timer_values)
        if output is not None:
            raise ConfigurationError(
                f"{type(run.processor).__name__}.handleInitialBatch returned {output!r}; it "
                "has no output and must return None. If it has a yield, take that out"
            )
    return iter(())


def fire_timers_in_bulk(
    size: BlockSize, timers: str, until_ms: UntilMs, run: EpochRun
) -> Iterator[Any]:
    """Call `handleExpiredTimers` for all due timers, see Step, and delete the timers. The timers
    are in the same order as in `fire_timers`. `size.rows`: the greatest number of timers in one
    call; `timers`: name of the state with the timers."""
    due = run.backend.due_timers(timers, until_ms(run.timer_values))
    held = run.backend.timers(timers)
    for first in range(0, len(due), size.rows):
        run.check()
        part = due[first : first + size.rows]
        run.backend.read_ahead([t.key for t in part], [t.key_group for t in part])
        run.call.begin("handleExpiredTimers")
        output = run.processor.handleExpiredTimers(_expired(run, part), run.timer_values)
        yield from _checked(run, "handleExpiredTimers", output)
        for timer in part:
            run.backend.set_current_key(timer.key, timer.key_group)
            held.delete(timer.time_ms)


def _batches(run: EpochRun, name: str, size: BlockSize) -> Iterator[KeyedBatch]:
    given = run.inputs[name]
    for keyed in given.by_key(run.key_columns):
        for block in blocks(keyed, size):
            run.check()
            run.backend.read_ahead(block.keys, block.key_groups)
            yield keyed_batch(block, given.layout.row_names, run.key_columns)


def _expired(run: EpochRun, due: Sequence[Due]) -> ExpiredTimers:
    keys = Keys(run.key_columns, [timer.key for timer in due], [timer.key_group for timer in due])
    return ExpiredTimers(keys, pa.array([timer.time_ms for timer in due], pa.int64()))


def _checked(run: EpochRun, method: str, output: Any) -> Iterator[Any]:
    if output is None:
        raise no_output(run, f"{method} returned None")
    return iter(output)
