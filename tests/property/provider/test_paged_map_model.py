"""The provider's paged map agrees with a dict at every step of random operations.

Hypothesis looks for short scripts. The seeded scripts live through whole lives of maps, from the
first small table through several rehashes. Views are opened, read in small steps or by other
threads, and released in any order. After every line the JVM checks the map's invariants, and checks
that the charged bytes are the bytes of pages and tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.provider.map_model import MapModel
from tests.support.provider.provider_jvm import ProviderJvm, WordValue, key_bytes
from tests.support.random_steps import ModelStep, histories, step, take

pytestmark = pytest.mark.spark

KEYS = 1_200
MANY_KEYS = range(8_000)
LINES_PER_LIFE = 1_500
# Enough changes for the map to compact itself during the changes.
LONG_VALUE_WORDS = 2_000
RECORD_HEADER_BYTES = 16
# The pages being filled and the pages being emptied.
FIXED_BYTES = 1 << 19


keys = st.integers(0, 300)
MOST = 120
counts = st.integers(1, MOST)
strides = st.integers(1, 7)
lengths_in_words = st.just(5) | st.integers(1, 50)
values = st.builds(WordValue, lengths_in_words, st.integers(0, 9))
# Longer than the room of a page.
giant_values = st.builds(WordValue, st.just(33_000), st.integers(0, 9))
places = st.integers(0, 7)
removed = st.sampled_from([1, 1, 2, 5])
puts = (keys, counts, strides, values, st.sampled_from([0, 0, 1]))
steps = st.one_of(
    step("put_some", *puts),
    step("put_some", keys, st.just(1), strides, giant_values, st.just(0)),
    step("fill", keys, counts, values, st.sampled_from([0, 50, 100, 400, 4000])),
    step("trim"),
    step("remove_some", keys, counts, strides),
    step("look_up", keys),
    step(
        "update",
        st.tuples(*puts),
        st.sampled_from([MOST, MOST, 1, 2, 40]),
        st.sampled_from([0, 0, 2, 5]),
        st.booleans(),
    ),
    step("evict_read", keys, counts, strides, removed, st.booleans()),
    step("evict_old", st.just("key"), keys, st.booleans()),
    step("evict_old", st.just("value"), st.integers(0, 9), st.booleans()),
    step("evict", st.just("key"), keys, removed),
    step("evict", st.just("value"), st.integers(0, 9), removed),
    step("compact", st.sampled_from([0, 1 << 12, 1 << 30])),
    step("open_view"),
    step("read", places, st.integers(0, 40)),
    step("release", places),
)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_the_map_and_its_views_agree_with_dicts(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    @examples(8)
    @given(histories(steps, 40))
    def agree(script: list[ModelStep]) -> None:
        model = MapModel(with_prefix)
        take(model, script)
        model.end()
        model.script.run_on(provider_jvm.new("MapScript", with_prefix, local_directory))

    agree()


class Life:
    """A long random script of one seed: first the map mostly grows, then puts and removals
    alternate."""

    def __init__(self, seed: int, with_prefix: bool) -> None:
        self.random = random.Random(seed)
        self.words = (1, 5, 5, LONG_VALUE_WORDS if seed % 3 == 0 else 50)
        self.model = MapModel(with_prefix)
        self.opened_at: list[int] = []
        # A restore fills a map like this, and may expect fewer or more entries than come.
        if seed % 2:
            self.model.reserve(seed * 50)
            self.model.add_all(range(0, KEYS, 13), WordValue(5, seed))
            self.model.trim()
        for place in range(LINES_PER_LIFE):
            self.change(growing=place < LINES_PER_LIFE // 2)
            if place % 8 == 0:
                self.view(self.random.random())
        self.model.end()

    def change(self, growing: bool) -> None:
        key = self.random.randrange(KEYS)
        chance = self.random.random()
        if chance < (0.7 if growing else 0.45):
            self.model.put(key, WordValue(self.random.choice(self.words), key + self.model.opened))
        elif chance < 0.9:
            self.model.remove(self.random.choice(list(self.model.entries) or [key]))
        else:
            self.model.look_up(key)

    def view(self, chance: float) -> None:
        if chance < 0.15 and len(self.model.views) < 4:
            self.model.open_view()
            self.opened_at.append(len(self.model.script.lines))
            self.model.script.add("rehash", None)
        elif chance < 0.3:
            self.model.release(self.random.randrange(4))
        elif chance < 0.5:
            self.model.read(self.random.randrange(4), self.random.randrange(200))
        elif chance < 0.55:
            self.model.watch(self.random.randrange(4))
        elif chance < 0.7:
            self.model.compact(self.random.choice((0, 1 << 12, 1 << 30)))
        elif chance < 0.75:
            # The keys of whole pages, and some keys of all pages.
            part, stride = self.random.choice((("key", 7), ("value", 1), ("value", 3)))
            self.model.evict(part, self.random.randrange(KEYS // 4), stride)
        elif chance < 0.85 and len(self.model.views) < 4:
            part = self.random.choice(("key", "value", "value", "value"))
            self.model.open_old_rows(part, self.random.randrange(KEYS))
            self.opened_at.append(len(self.model.script.lines))
            self.model.script.add("rehash", None)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_the_map_and_its_views_agree_with_dicts_over_whole_lives(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    met: Counter[str] = Counter()
    for seed in range(8):
        life = Life(seed, with_prefix)
        results = life.model.script.run_on(
            provider_jvm.new("MapScript", with_prefix, local_directory)
        )
        percents = [int(results[place].split(";")[0]) for place in life.opened_at]
        met["a view was opened during a rehash"] += any(0 < percent < 100 for percent in percents)
        met["a view was opened between rehashes"] += 100 in percents
    assert min(met.values()) > 4


def live_bytes(entries: dict[int, WordValue]) -> int:
    """The bytes of the records of these entries, without the links of prefixes."""
    return sum(
        RECORD_HEADER_BYTES + len(key_bytes(key)) + value.words * 8
        for key, value in entries.items()
    )


def held_after(
    model: MapModel, provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> list[int]:
    """The number of bytes in the map at each line "held" of the script."""
    results = model.script.run_on(provider_jvm.new("MapScript", with_prefix, local_directory))
    lines = zip(model.script.lines, results, strict=True)
    return [int(result.split(";")[0]) for line, result in lines if line == "held"]


@pytest.mark.parametrize("with_prefix", [False, True])
@pytest.mark.parametrize("lengths", [[20], [18, 20, 22]], ids=["same length", "other lengths"])
@pytest.mark.parametrize("share", [1.0, 0.1], ids=["all keys", "a tenth"])
def test_updates_of_the_same_keys_hold_less_than_three_times_what_is_alive(
    provider_jvm: ProviderJvm,
    with_prefix: bool,
    lengths: Sequence[int],
    share: float,
    local_directory: str,
) -> None:
    choice = random.Random(1)
    model = MapModel()
    model.put_all(MANY_KEYS, WordValue(20, 0))
    # Enough for four times the live bytes, if the map took nothing back.
    for epoch in range(round(3 / share) + 9):
        model.open_view()
        updates = choice.sample(MANY_KEYS, round(len(MANY_KEYS) * share))
        values = [WordValue(words, epoch) for words in lengths]
        for place, value in enumerate(values):
            model.put_all(updates[place :: len(values)], value)
        model.views.clear()
        model.script.add(f"drop view-{model.opened}", None)
        model.compact(live_bytes({key: model.entries[key] for key in updates}))
        model.script.add("held", None)
    held = held_after(model, provider_jvm, with_prefix, local_directory)
    assert max(held) < 3 * live_bytes(model.entries) + FIXED_BYTES


def test_memory_falls_when_all_views_of_replaced_records_are_released(
    provider_jvm: ProviderJvm,
) -> None:
    model = MapModel()
    model.put_all(MANY_KEYS, WordValue(20, 0))
    model.script.add("held", None)
    for epoch in range(4):
        model.open_view()
        model.put_all(MANY_KEYS, WordValue(20, epoch))
        model.compact(1 << 30)
    model.script.add("held", None)
    for place in (1, 2, 0):
        model.release(place)
    model.script.add("held", None)
    model.release(0)
    model.script.add("held", None)
    before, under_views, under_one_view, afterwards = held_after(model, provider_jvm, False, "")
    alive = live_bytes(model.entries)
    assert under_views > 4 * alive
    assert under_one_view < before + alive + 2 * FIXED_BYTES
    assert afterwards < before + FIXED_BYTES


def test_memory_is_bounded_while_a_view_is_open(provider_jvm: ProviderJvm) -> None:
    model = MapModel()
    model.put_all(MANY_KEYS, WordValue(20, 0))
    model.open_view()
    for epoch in range(12):
        model.put_all(MANY_KEYS, WordValue(20 + epoch % 2, epoch))
        model.compact(1 << 30)
        model.script.add("held", None)
    held = held_after(model, provider_jvm, False, "")
    assert max(held) < 3 * live_bytes(model.entries) + 2 * FIXED_BYTES
