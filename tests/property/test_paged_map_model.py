"""Random operations on the paged map of the provider, compared with a dict at every step.

Hypothesis looks for short scripts. The seeded scripts live through whole lives of maps, from the
first small table through several rehashes, with views opened, read bit by bit or by other threads,
and released in any order. After every line the JVM checks the map's invariants, and that the bytes
charged are those of pages and tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.provider_jvm import (
    ProviderJvm,
    Script,
    Value,
    key_bytes,
    old_entries,
    prefix_of,
    provider_jvm,
    shown,
    shown_prefix,
)

__all__ = ["provider_jvm"]
pytestmark = pytest.mark.spark

KEYS = 1_200
MANY_KEYS = range(8_000)
LINES_PER_LIFE = 1_500
# Enough for the map to compact itself while it is being changed.
LONG_VALUE_WORDS = 2_000
RECORD_HEADER_BYTES = 16
# The pages that are being filled and those being emptied.
FIXED_BYTES = 1 << 19


@dataclass
class MapModel:
    """A script, the dict that it must agree with, and what each open view must show."""

    script: Script = field(default_factory=Script)
    entries: dict[int, Value] = field(default_factory=dict)
    views: dict[str, dict[int, Value]] = field(default_factory=dict)
    opened: int = 0

    def _add(self, line: str, result: str = "") -> None:
        self.script.add(line, f"{result};{len(self.entries)}")

    def put(self, key: int, value: Value) -> None:
        self.entries[key] = value
        self._add(f"put {key} {value}")

    def put_all(self, keys: Sequence[int], value: Value) -> None:
        self.entries |= dict.fromkeys(keys, value)
        self._add(f"puts {','.join(map(str, keys))} {value}")

    def add_all(self, keys: Sequence[int], value: Value) -> None:
        """Add those that are not there."""
        for key in keys:
            if key not in self.entries:
                self.entries[key] = value
                self._add(f"add {key} {value}")

    def reserve(self, count: int) -> None:
        self._add(f"reserve {count}")

    def trim(self) -> None:
        self._add("trim")

    def remove(self, key: int) -> None:
        was_there = self.entries.pop(key, None) is not None
        self._add(f"remove {key}", str(was_there).lower())

    def get(self, key: int) -> None:
        self._add(f"get {key}", str(self.entries.get(key, "-")))
        self._add(f"contains {key}", str(key in self.entries).lower())

    def prefetch(self, keys: Sequence[int]) -> None:
        self._add(f"prefetch {','.join(map(str, keys))}")

    def scan(self, key: int) -> None:
        prefix = prefix_of(key)
        self._add(f"scan {prefix}", shown_prefix(self.entries, prefix))

    def compact(self, limit_bytes: int) -> None:
        self._add(f"compact {limit_bytes}")

    def open_view(self) -> None:
        self.opened += 1
        name = f"view-{self.opened}"
        self.views[name] = dict(self.entries)
        self._add(f"open {name}")

    def open_old_rows(self, part: str, up_to: int) -> dict[int, Value]:
        """Open a view of what is old, which is returned."""
        self.opened += 1
        name = f"view-{self.opened}"
        self.views[name] = old_entries(self.entries, part, up_to)
        self._add(f"old {name} {part} {up_to}")
        return self.views[name]

    def watch(self, place: int) -> None:
        """Let another thread read an open view, if there is one, until it is released."""
        if self.views:
            self._add(f"watch {self._view(place)}")

    def read(self, place: int, count: int) -> None:
        """Read some more of an open view, if there is one, by its own reader."""
        if self.views:
            self._add(f"read {self._view(place)} {count}")

    def read_all(self, place: int) -> None:
        """Read an open view from its beginning to its end, if there is one."""
        if self.views:
            name = self._view(place)
            self._add(f"entries {name}", shown(self.views[name]))

    def release(self, place: int) -> None:
        """Release an open view, if there is one, after comparing all that was read of it."""
        if self.views:
            name = self._view(place)
            self._add(f"release {name}", shown(self.views.pop(name)))

    def _view(self, place: int) -> str:
        return list(self.views)[place % len(self.views)]

    def end(self, with_prefix: bool) -> None:
        """Compare what is left."""
        while self.views:
            self.release(0)
        self.open_view()
        self.release(0)
        if with_prefix:
            for key in {prefix_of(key): key for key in self.entries}.values():
                self.scan(key)


@dataclass(frozen=True)
class PutSome:
    """Put `count` keys from `start` on, every `stride`th; values get longer by `growth` words."""

    start: int
    count: int
    stride: int
    value: Value
    growth: int


@dataclass(frozen=True)
class Fill:
    """Add those of `count` keys from `start` on that are not there, after `reserved` of them."""

    start: int
    count: int
    value: Value
    reserved: int


@dataclass(frozen=True)
class Trim:
    pass


@dataclass(frozen=True)
class RemoveSome:
    start: int
    count: int
    stride: int


@dataclass(frozen=True)
class LookUp:
    key: int


@dataclass(frozen=True)
class Update:
    """Look up some keys as in PutSome, `ahead` of them before the first is written, and write them:
    each `removed`th is removed, if that is not 0. Written in the order of the reads, as operators
    do, or from the last one to the first."""

    puts: PutSome
    ahead: int
    removed: int
    backwards: bool


@dataclass(frozen=True)
class Evict:
    """Look up some keys, and remove each `removed`th right after it was read, as joins do with old
    rows; in the order in which PutSome puts them, or the other way round."""

    start: int
    count: int
    stride: int
    removed: int
    backwards: bool


@dataclass(frozen=True)
class EvictOld:
    """Look for what is old, and remove it, or every second of it."""

    part: str
    up_to: int
    all: bool


@dataclass(frozen=True)
class Compact:
    limit_bytes: int


@dataclass(frozen=True)
class Open:
    pass


@dataclass(frozen=True)
class Read:
    """Read `count` more entries of an open view; all, and from the beginning, if it is 0."""

    place: int
    count: int


@dataclass(frozen=True)
class Release:
    place: int


Change = PutSome | Fill | Trim | RemoveSome | Update | Evict | EvictOld | Compact
Step = Change | LookUp | Open | Read | Release

keys = st.integers(0, 300)
MOST = 120
counts = st.integers(1, MOST)
strides = st.integers(1, 7)
lengths_in_words = st.just(5) | st.integers(1, 50)
values = st.builds(Value, lengths_in_words, st.integers(0, 9))
# More than a page has room for.
giant_values = st.builds(Value, st.just(33_000), st.integers(0, 9))
places = st.integers(0, 7)
puts = st.builds(PutSome, keys, counts, strides, values, st.sampled_from([0, 0, 1]))
steps: st.SearchStrategy[Step] = st.one_of(
    puts,
    st.builds(PutSome, keys, st.just(1), strides, giant_values, st.just(0)),
    st.builds(Fill, keys, counts, values, st.sampled_from([0, 50, 100, 400, 4000])),
    st.builds(Trim),
    st.builds(RemoveSome, keys, counts, strides),
    st.builds(LookUp, keys),
    st.builds(
        Update,
        puts,
        st.sampled_from([MOST, MOST, 1, 2, 40]),
        st.sampled_from([0, 0, 2, 5]),
        st.booleans(),
    ),
    st.builds(Evict, keys, counts, strides, st.sampled_from([1, 1, 2, 5]), st.booleans()),
    st.builds(EvictOld, st.just("key"), keys, st.booleans()),
    st.builds(EvictOld, st.just("value"), st.integers(0, 9), st.booleans()),
    st.builds(Compact, st.sampled_from([0, 1 << 12, 1 << 30])),
    st.builds(Open),
    st.builds(Read, places, st.integers(0, 40)),
    st.builds(Release, places),
)
scripts = st.integers(0, 40).flatmap(
    lambda length: st.lists(steps, min_size=length, max_size=length)
)


def entries_of(puts: PutSome) -> list[tuple[int, Value]]:
    """What is put, in order."""
    return [
        (
            puts.start + place * puts.stride,
            Value(puts.value.words + place * puts.growth % 50, puts.value.seed),
        )
        for place in range(puts.count)
    ]


def apply(model: MapModel, step: Step, with_prefix: bool) -> None:
    match step:
        case PutSome():
            for key, value in entries_of(step):
                model.put(key, value)
        case Update():
            entries = entries_of(step.puts)
            model.prefetch([key for key, _ in entries])
            for key, _ in entries[: step.ahead]:
                model.get(key)
            for place, (key, value) in enumerate(entries[:: -1 if step.backwards else 1]):
                if step.ahead + place < len(entries):
                    model.get(entries[step.ahead + place][0])
                if step.removed and place % step.removed == 0:
                    model.remove(key)
                else:
                    model.put(key, value)
        case Evict():
            evicted = range(step.start, step.start + step.count * step.stride, step.stride)
            for place, key in enumerate(evicted[:: -1 if step.backwards else 1]):
                model.get(key)
                if place % step.removed == 0:
                    model.remove(key)
        case EvictOld():
            for key in list(model.open_old_rows(step.part, step.up_to))[:: 1 if step.all else 2]:
                model.get(key)
                model.remove(key)
        case Fill():
            model.reserve(step.reserved)
            model.add_all(range(step.start, step.start + step.count), step.value)
        case Trim():
            model.trim()
        case RemoveSome():
            for place in range(step.count):
                model.remove(step.start + place * step.stride)
        case LookUp():
            model.get(step.key)
            if with_prefix:
                model.scan(step.key)
        case Compact():
            model.compact(step.limit_bytes)
        case Open():
            model.open_view()
        case Read():
            model.read(step.place, step.count) if step.count else model.read_all(step.place)
        case Release():
            model.release(step.place)


@pytest.fixture(params=["heap", "disk"])
def local_directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a map has its files; none on the heap."""
    return "" if request.param == "heap" else str(tmp_path)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_the_map_and_its_views_agree_with_dicts(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    @settings(max_examples=60)
    @given(scripts)
    def agree(script: list[Step]) -> None:
        model = MapModel()
        for step in script:
            apply(model, step, with_prefix)
        model.end(with_prefix)
        model.script.run_on(provider_jvm.new("MapScript", with_prefix, local_directory))

    agree()


class Life:
    """A long random script of one seed: the map mostly grows at first, then puts and removes."""

    def __init__(self, seed: int, with_prefix: bool) -> None:
        self.random = random.Random(seed)
        self.words = (1, 5, 5, LONG_VALUE_WORDS if seed % 3 == 0 else 50)
        self.with_prefix = with_prefix
        self.model = MapModel()
        self.opened_at: list[int] = []
        # As a restore fills a map, expecting fewer or more than come.
        if seed % 2:
            self.model.reserve(seed * 50)
            self.model.add_all(range(0, KEYS, 13), Value(5, seed))
            self.model.trim()
        for place in range(LINES_PER_LIFE):
            self.change(growing=place < LINES_PER_LIFE // 2)
            if place % 8 == 0:
                self.view(self.random.random())
        self.model.end(with_prefix)

    def change(self, growing: bool) -> None:
        key = self.random.randrange(KEYS)
        chance = self.random.random()
        if chance < (0.7 if growing else 0.45):
            self.model.put(key, Value(self.random.choice(self.words), key + self.model.opened))
        elif chance < 0.9:
            self.model.remove(self.random.choice(list(self.model.entries) or [key]))
        elif chance < 0.95:
            self.model.get(key)
        elif self.with_prefix:
            self.model.scan(key)

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


def live_bytes(entries: dict[int, Value]) -> int:
    """What the records of these entries take, without the links of prefixes."""
    return sum(
        RECORD_HEADER_BYTES + len(key_bytes(key)) + value.words * 8
        for key, value in entries.items()
    )


def held_after(
    model: MapModel, provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> list[int]:
    """What the map held at each line "held" of the script."""
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
    model.put_all(MANY_KEYS, Value(20, 0))
    # Enough to make four times of what is alive, if nothing were taken back.
    for epoch in range(round(3 / share) + 9):
        model.open_view()
        updates = choice.sample(MANY_KEYS, round(len(MANY_KEYS) * share))
        values = [Value(words, epoch) for words in lengths]
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
    model.put_all(MANY_KEYS, Value(20, 0))
    model.script.add("held", None)
    for epoch in range(4):
        model.open_view()
        model.put_all(MANY_KEYS, Value(20, epoch))
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
    model.put_all(MANY_KEYS, Value(20, 0))
    model.open_view()
    for epoch in range(12):
        model.put_all(MANY_KEYS, Value(20 + epoch % 2, epoch))
        model.compact(1 << 30)
        model.script.add("held", None)
    held = held_after(model, provider_jvm, False, "")
    assert max(held) < 3 * live_bytes(model.entries) + 2 * FIXED_BYTES


@pytest.mark.parametrize("part", ["key", "value"])
def test_pages_without_old_rows_are_not_read(
    provider_jvm: ProviderJvm, part: str, local_directory: str
) -> None:
    model = MapModel()
    times = [number for number in MANY_KEYS if number % 4 != 3]
    for number in times:
        model.put(number, Value(200, number))
    tenth, middle = times[len(times) // 10], times[len(times) // 2]
    asked = [ask_for_old_rows(model, part, up_to) for up_to in (times[-1], tenth)]
    for number in old_entries(model.entries, part, tenth):
        model.remove(number)
    asked.append(ask_for_old_rows(model, part, tenth))
    # A record in the middle has a new value, by which it is old, or a record at the tail is.
    model.put(middle if part == "value" else 0, Value(200, 0))
    asked.append(ask_for_old_rows(model, part, tenth))
    results = model.script.run_on(provider_jvm.new("MapScript", False, local_directory))
    everywhere, old, none, one = (int(results[line].split(";")[0]) for line in asked)
    # The first pages are small.
    assert everywhere > 30
    assert 1 < old < everywhere / 3
    assert (none, one) == (0, 1)


def ask_for_old_rows(model: MapModel, part: str, up_to: int) -> int:
    """Returns the line of the script that tells in how many pages they are looked for."""
    model.open_old_rows(part, up_to)
    model.script.add(f"pages view-{model.opened}", None)
    asked = len(model.script.lines) - 1
    model.release(0)
    return asked
