"""Tables reuse the entry of the current key while maps grow and snapshots are open."""

from __future__ import annotations

import random
from typing import Any

import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from tests.support.operators.keyed_state_backend_contract import KEYS, LIST, MAP, VALUE


@pytest.mark.parametrize("seed", range(4))
def test_what_is_put_through_kept_entries_is_there(seed: int) -> None:
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 0), KEYS, PLAIN_FORMS)
    value, elements, entries = (backend.state(state) for state in (VALUE, LIST, MAP))
    states: tuple[Any, Any, Any] = value, elements, entries
    chance = random.Random(seed)
    held: dict[int, tuple[int, list[int], dict[int, int]]] = {}
    snapshots: list[Any] = []
    for step in range(3_000):
        # The number of keys grows, so the maps grow again and again.
        key = chance.randrange(1 + step // 4)
        backend.set_current_key((key,), 0)
        of_key = held.get(key, (0, [], {}))
        assert [e[0] for e in states[1].get()] == of_key[1]
        if chance.random() < 0.2:
            for state in states:
                state.clear()
            held.pop(key, None)
            continue
        states[0].update((step,))
        states[1].appendValue((step,))
        states[2].updateValue((step % 3,), (step,))
        held[key] = (step, [*of_key[1], step], {**of_key[2], step % 3: step})
        if step % 97 == 0:
            backend.seal()
            snapshots.append(backend.snapshot())
        if step % 211 == 0 and snapshots:
            snapshots.pop(0).release()
    for key in range(750):
        backend.set_current_key((key,), 0)
        seen = (
            (states[0].get() or (0,))[0],
            [element[0] for element in states[1].get()],
            {entry[0]: of_entry[0] for entry, of_entry in states[2].iterator()},
        )
        assert seen == held.get(key, (0, [], {}))
    for snapshot in snapshots:
        snapshot.release()
    backend.check_invariants()
