"""The estimate of a backend's memory is near the memory that Python allocated."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.timed_steps import timers_of
from tests.support.operators.keyed_state_backend_contract import LIST, MAP, VALUE

KEYS = KeyColumns(("key",), (pa.string(),), ("string",))
GROUPS = KeyGroupRange(0, 15)
WIDE = pa.struct(
    [
        ("text", pa.string()),
        ("share", pa.float64()),
        ("numbers", pa.list_(pa.int64())),
        ("at", pa.timestamp("us")),
    ]
)
NOON_MS = 1_700_000_000_000
Fill = Callable[[HeapKeyedStateBackend, int], None]


def set_key(backend: HeapKeyedStateBackend, number: int) -> None:
    backend.set_current_key((f"key{number}",), number % len(GROUPS))


def values(backend: HeapKeyedStateBackend, keys: int) -> None:
    state: Any = backend.state(VALUE)
    for number in range(keys):
        set_key(backend, number)
        state.update((1000 * number,))


def wide_values(backend: HeapKeyedStateBackend, keys: int) -> None:
    state: Any = backend.state(replace(VALUE, value_type=WIDE))
    for number in range(keys):
        set_key(backend, number)
        numbers = [1000 * number + place for place in range(number % 12)]
        state.update((f"text {number} " * 5, number / 3, numbers, datetime(2020, 1, 1)))


def lists(backend: HeapKeyedStateBackend, keys: int) -> None:
    state: Any = backend.state(LIST)
    for number in range(keys):
        set_key(backend, number)
        state.put([(1000 * number + place,) for place in range(1 + number % 7)])


def maps(backend: HeapKeyedStateBackend, keys: int) -> None:
    state: Any = backend.state(MAP)
    for number in range(keys):
        set_key(backend, number)
        for place in range(1 + number % 7):
            state.updateValue((1000 * place,), (999 * number,))


def timers(backend: HeapKeyedStateBackend, keys: int) -> None:
    (descriptor,) = timers_of("ProcessingTime")
    backend.state(descriptor)
    of_key = backend.timers(descriptor.name)
    for number in range(keys):
        set_key(backend, number)
        of_key.register(NOON_MS + 7 * number)


def values_that_expire(backend: HeapKeyedStateBackend, keys: int) -> None:
    state: Any = backend.state(replace(VALUE, ttl_ms=1000))
    for number in range(keys):
        backend.begin(NOON_MS + number // 100)
        set_key(backend, number)
        state.update((1000 * number,))


def filled(fill: Fill, keys: int) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(GROUPS, KEYS, PLAIN_FORMS)
    fill(backend, keys)
    # After two seals, the older epoch's changes can no longer be undone.
    backend.seal()
    backend.seal()
    return backend


@pytest.mark.parametrize("fill", [values, wide_values, lists, maps, timers, values_that_expire])
@pytest.mark.parametrize("keys", [500, 10_000])
@pytest.mark.long
def test_the_estimate_is_within_a_quarter_of_what_was_allocated(fill: Fill, keys: int) -> None:
    filled(fill, 1)  # imports modules, and fills caches
    gc.collect()
    tracemalloc.start()
    try:
        backend = filled(fill, keys)
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.75 <= backend.memory_bytes() / allocated <= 1.25


def test_one_key_with_most_elements_is_overestimated_by_less_than_a_factor_of_two_and_a_half() -> (
    None
):
    def one_large_list(backend: HeapKeyedStateBackend, elements: int) -> None:
        state: Any = backend.state(LIST)
        for number in range(elements // 10):
            set_key(backend, number)
            state.put([(number,)])
        backend.set_current_key(("large",), 3)
        state.put([(number,) for number in range(1000, 1000 + elements)])

    filled(one_large_list, 10)
    gc.collect()
    tracemalloc.start()
    try:
        backend = filled(one_large_list, 10_000)
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.75 <= backend.memory_bytes() / allocated <= 2.5


def test_states_without_entries_take_their_tables_only() -> None:
    assert HeapKeyedStateBackend(GROUPS, KEYS, PLAIN_FORMS).memory_bytes() == 0
    emptied = filled(values, 100)
    for number in range(100):
        set_key(emptied, number)
        emptied.state(VALUE).clear()
    emptied.seal()
    assert len(emptied) == 0
    assert 0 < emptied.memory_bytes() < filled(values, 100).memory_bytes()


def test_a_larger_state_is_not_looked_at_more_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def count(keys: int) -> int:
        looked_at.clear()
        filled(lists, keys).memory_bytes()
        return len(looked_at)

    from spark_state.heap import heap_memory

    bytes_of = heap_memory.bytes_of

    def noted(value: Any, levels: int = 4) -> int:
        looked_at.append(1)
        return bytes_of(value, levels)

    monkeypatch.setattr(heap_memory, "bytes_of", noted)
    assert count(20_000) < 3 * count(1_000)


def test_timers_are_counted() -> None:
    backend = filled(timers, 30)
    assert backend.number_of_timers() == 30
    assert filled(values, 30).number_of_timers() == 0
