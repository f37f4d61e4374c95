"""The copy-on-write map agrees with a dict at every step of random operations.

Hypothesis looks for short scripts on a few keys and checks the invariants after every step. The
seeded scripts run 200,000 operations over whole lives of maps, from a tiny first table through
several rehashes, with up to four snapshots open and half read; as soak tests, 1,000,000.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.operators.state_map_model import ChosenHashKey, StateMapModel
from tests.support.random_steps import ModelStep, histories, step, take

OPERATIONS_PER_LIFE = 10_000
MOST_OPEN_SNAPSHOTS = 4


def colliding_keys(_random: random.Random) -> list[ChosenHashKey]:
    """Keys with few hashes: some hashes are equal, some differ only in bits used by a larger
    table."""
    codes = [0, 1, 1 << 3, 1 << 40, -2, -(1 << 5)]
    return [ChosenHashKey(name, codes[name % len(codes)]) for name in range(48)]


def keys_that_collide_until_the_table_grows(random: random.Random) -> list[ChosenHashKey]:
    return [ChosenHashKey(name, (name % 4) | random.getrandbits(6) << 6) for name in range(900)]


def keys_of_any_hash(random: random.Random) -> list[ChosenHashKey]:
    limit = 1 << 60
    return [ChosenHashKey(name, random.randrange(-limit, limit)) for name in range(1500)]


class RandomOperations:
    """Random operations of one seed, and a count of each rare circumstance."""

    def __init__(self, seed: int, keys: Callable[[random.Random], list[ChosenHashKey]]) -> None:
        self.random = random.Random(seed)
        self.keys = keys(self.random)
        self.met: Counter[str] = Counter()

    def live_one_life(self) -> None:
        """Use one map from its first table on: first mostly growth, then as many puts as
        removals."""
        model = StateMapModel(1 << self.random.randrange(8))
        reading = [model.get, model.own, model.own]
        growing = [*reading, model.put, model.put, model.put, model.remove]
        steady = [
            *reading,
            model.put,
            model.put_found,
            model.remove,
            model.remove_found,
        ]
        for place in range(OPERATIONS_PER_LIFE):
            operations = growing if place < OPERATIONS_PER_LIFE // 2 else steady
            was_rehashing = bool(model.map.incremental_rehash_table)
            operation = self.random.choice(operations)
            operation(self.random.choice(self.keys), place)
            if was_rehashing and not model.map.incremental_rehash_table and model.open:
                self.met["rehash ended under an open snapshot"] += 1
            if model.open:
                model.look_up(place, self.random.choice(self.keys))
            if place % 16 == 0:
                self.handle_snapshots(model)
            if place % 1000 == 0:
                model.iterate()
                model.check()
        model.close()

    def handle_snapshots(self, model: StateMapModel) -> None:
        chance = self.random.random()
        if chance < 0.1:
            if len(model.open) == MOST_OPEN_SNAPSHOTS:
                model.release(self.random.randrange(MOST_OPEN_SNAPSHOTS))
            if model.map.incremental_rehash_table:
                self.met["snapshot during a rehash"] += 1
            model.snapshot()
        elif model.open and chance < 0.15:
            model.release(self.random.randrange(len(model.open)))
            self.met["release of one of several"] += bool(model.open)
        elif model.open and chance < 0.5:
            self.random.choice(model.open).read_some(self.random.randrange(20))


@pytest.mark.parametrize(
    ("seed", "keys", "lives"),
    [
        (1, colliding_keys, 12),
        (2, keys_that_collide_until_the_table_grows, 4),
        (3, keys_of_any_hash, 4),
        pytest.param(4, colliding_keys, 25, marks=pytest.mark.soak),
        pytest.param(5, keys_that_collide_until_the_table_grows, 25, marks=pytest.mark.soak),
        pytest.param(6, keys_of_any_hash, 25, marks=pytest.mark.soak),
        pytest.param(7, keys_of_any_hash, 25, marks=pytest.mark.soak),
    ],
)
def test_the_map_agrees_with_a_dict_over_random_lives(
    seed: int, keys: Callable[[random.Random], list[ChosenHashKey]], lives: int
) -> None:
    script = RandomOperations(seed, keys)
    for _ in range(lives):
        script.live_one_life()
    assert script.met.keys() == {
        "rehash ended under an open snapshot",
        "snapshot during a rehash",
        "release of one of several",
    }


KEYS = [ChosenHashKey(name, (0, 0, 0, 2, 4, 1 << 40, -2)[name % 7]) for name in range(14)]
keys = st.sampled_from(KEYS)
items = st.integers(0, 9)


places = st.integers(0, 3)
steps = st.one_of(
    *(step(name, keys, items) for name in ("get", "own", "put", "put_found")),
    *(step(name, keys, items) for name in ("remove", "remove_found")),
    *(step("iterate"), step("snapshot"), step("release", places)),
    *(step("read_some", places, st.integers(1, 5)), step("look_up", places, keys)),
)


class Steps(StateMapModel):
    """The model, with steps on a snapshot that may come when no snapshot is open."""

    def release(self, place: int) -> None:
        if self.open:
            super().release(place)

    def read_some(self, place: int, entries: int) -> None:
        if self.open:
            self.open[place % len(self.open)].read_some(entries)

    def look_up(self, place: int, key: ChosenHashKey) -> None:
        if self.open:
            super().look_up(place, key)


@examples(70)
@given(st.sampled_from([1, 2, 8, 64]), st.integers(0, len(KEYS)), histories(steps, 50))
def test_the_map_agrees_with_a_dict_and_keeps_its_invariants_after_every_step(
    capacity: int, present: int, script: list[ModelStep]
) -> None:
    model = Steps(capacity)
    for key in KEYS[:present]:
        model.put(key, key.name)
    for each in script:
        take(model, [each])
        model.check()
    model.close()
