"""Versions of a state agree with one dict for each version in any random history.

A history begins versions on the newest version or an older version, puts and removes, commits or
aborts. Reads of any held version come at any moment: between versions, during a write, at once, or
through a reader that stays open while the state changes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.provider.provider_jvm import (
    ProviderJvm,
    Script,
    WordValue,
    old_entries,
    prefix_of,
    results_on,
    shown,
    shown_prefix,
)
from tests.support.random_steps import ModelStep, histories, step, take

pytestmark = pytest.mark.spark

EMPTY = "0/0"
LONG_VALUE_WORDS = 2_000
MANY_KEYS = range(20_000)
# The dead bytes before the map compacts itself, and the pages being filled.
SLACK_BYTES = 5 << 20
# The approximate size of a record of 20 or 21 words with its links.
RECORD_BYTES = 256
OUTCOMES = ("committed", "aborted")


@dataclass
class VersionsModel:
    """A script, and the expected dicts. A lookup also scans the prefix of the key, if
    `with_prefix`."""

    versions_to_retain: int
    with_prefix: bool = False
    script: Script = field(default_factory=Script)
    states: dict[str, dict[int, WordValue]] = field(default_factory=lambda: {EMPTY: {}})
    held: list[str] = field(default_factory=lambda: [EMPTY])
    writing: dict[int, WordValue] | None = None
    readers: dict[str, dict[int, WordValue]] = field(default_factory=dict)
    names: int = 0

    def _add(self, line: str, result: str = "") -> None:
        self.script.add(line, f"{result};{len(self.current)}")

    @property
    def current(self) -> dict[int, WordValue]:
        """The expected content of the map itself."""
        return self.states[self.held[0]] if self.writing is None else self.writing

    def _new_name(self) -> str:
        self.names += 1
        return f"{self.names:x}"

    def begin(self, back: int) -> None:
        """Begin a version on the newest held state, or on an older state."""
        if self.writing is None:
            del self.held[: back % len(self.held)]
            self.writing = dict(self.states[self.held[0]])
            self._add(f"begin {self.held[0]}")

    def put(self, start: int, count: int, value: WordValue, growth: int) -> None:
        """Put `count` keys from `start` on; values get longer by `growth` words."""
        self.begin(0)
        for place in range(count):
            put = WordValue(value.words + place * growth, value.seed)
            self.current[start + place] = put
            self._add(f"put {start + place} {put}")

    def remove(self, start: int, count: int) -> None:
        self.begin(0)
        for key in range(start, start + count):
            self.current.pop(key, None)
            self._add(f"remove {key}")

    def evict(self, part: str, up_to: int) -> None:
        """Let the map find old entries, and remove the entries."""
        self.begin(0)
        for key in old_entries(self.current, part, up_to):
            del self.current[key]
        self._add(f"evict {part} {up_to}")

    def prefetch(self, start: int, count: int) -> None:
        """Prefetch keys. A prefetch changes no later read."""
        self._add(f"prefetch {','.join(map(str, range(start, start + count)))}")

    def commit(self) -> None:
        self.begin(0)
        version = int(self.held[0].split("/")[0]) + 1
        made = f"{version}/{self._new_name()}"
        self.states[made] = self.current
        self.writing = None
        self.held = [made, *self.held][: self.versions_to_retain]
        self._add(f"commit {made}")
        self._add("held", " ".join(self.held))

    def abort(self) -> None:
        self.writing = None
        self._add("abort")

    def look_up(self, key: int) -> None:
        """Read a key of every held state, and of the map."""
        self._add(f"get {key}", str(self.current.get(key, "-")))
        prefix = prefix_of(key)
        if self.with_prefix:
            self._add(f"scan {prefix}", shown_prefix(self.current, prefix))
        for at in self.held:
            self._add(f"get {at} {key}", str(self.states[at].get(key, "-")))
            if self.with_prefix:
                self._add(f"scan {at} {prefix}", shown_prefix(self.states[at], prefix))

    def read_all(self) -> None:
        """Read every held state."""
        for at in self.held:
            self._add(f"entries {at}", shown(self.states[at]))

    def open_reader(self, back: int) -> None:
        name, at = self._new_name(), self.held[back % len(self.held)]
        self.readers[name] = self.states[at]
        self._add(f"open {name} {at}")

    def open_view(self) -> None:
        """Open a view of the map, as a snapshot does."""
        name = self._new_name()
        self.readers[name] = dict(self.current)
        self._add(f"view {name}")

    def open_old_rows(self, part: str, up_to: int) -> None:
        """Open a view of old entries, as an evicting operator does."""
        name = self._new_name()
        self.readers[name] = old_entries(self.current, part, up_to)
        self._add(f"old {name} {part} {up_to}")

    def close_reader(self, place: int) -> None:
        """Read an open reader to its end, and close the reader, if there is a reader."""
        if self.readers:
            name = list(self.readers)[place % len(self.readers)]
            self._add(f"close {name}", shown(self.readers.pop(name)))

    def run_on(self, provider_jvm: ProviderJvm, local_directory: str) -> None:
        """End the history, and compare all results."""
        while self.readers:
            self.close_reader(0)
        self.read_all()
        self.abort()
        self.read_all()
        self.script.run_on(
            provider_jvm.new(
                "VersionsScript", self.with_prefix, self.versions_to_retain, 0, local_directory
            )
        )


keys = st.integers(0, 40)
counts = st.integers(1, 40)
backs = st.integers(0, 3)
values = st.builds(WordValue, st.just(5) | st.integers(1, 50), st.integers(0, 9))
puts = step("put", keys, counts, values, st.sampled_from([0, 0, 1]))
steps = st.one_of(
    puts,
    puts,
    step("begin", backs),
    step("remove", keys, counts),
    step("prefetch", keys, counts),
    step("evict", st.just("key"), keys),
    step("evict", st.just("value"), st.integers(0, 9)),
    step("commit"),
    step("commit"),
    step("abort"),
    step("look_up", keys),
    step("read_all"),
    step("open_reader", backs),
    step("open_view"),
    step("open_old_rows", st.just("key"), keys),
    step("open_old_rows", st.just("value"), st.integers(0, 9)),
    step("close_reader", backs),
)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_every_version_that_is_held_reads_as_it_was_committed(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    @examples(20)
    @given(st.integers(1, 4), histories(steps, 40))
    def agree(versions_to_retain: int, history: list[ModelStep]) -> None:
        model = VersionsModel(versions_to_retain, with_prefix)
        take(model, history)
        model.run_on(provider_jvm, local_directory)

    agree()


def random_step(choice: random.Random, longest_words: int) -> ModelStep:
    """Draw a step of a long history: mostly changes of several keys, versions of about ten
    changes."""
    key = choice.randrange(600)
    value = WordValue(choice.choice((1, 4, 4, longest_words)), choice.randrange(1 << 32))
    some: list[ModelStep] = [
        *[("put", key, choice.randrange(1, 30), value, choice.choice((0, 0, 1)))] * 8,
        *[("remove", key, choice.randrange(1, 20))] * 3,
        *[("commit",)] * 2,
        *[("look_up", key)] * 3,
        *[("prefetch", key, 40)] * 3,
        ("abort",),
        ("begin", choice.randrange(4)),
        ("open_reader", choice.randrange(3)),
        ("open_view",),
        *[("open_old_rows", "value", choice.randrange(1 << 32))] * 2,
        ("open_old_rows", "key", choice.randrange(600)),
        ("evict", "value", choice.randrange(1 << 30)),
        ("evict", "key", choice.randrange(60)),
        *[("close_reader", choice.randrange(4))] * 2,
    ]
    return choice.choice(some)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_versions_agree_with_dicts_over_long_histories(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    for seed in range(8):
        # Long values make the map compact itself during versions and during undo.
        longest_words = LONG_VALUE_WORDS if seed % 2 else 50
        choice = random.Random(seed)
        model = VersionsModel(1 + seed % 4, with_prefix)
        for number in range(200):
            take(model, [random_step(choice, longest_words)])
            if number % 20 == 0:
                model.read_all()
        model.run_on(provider_jvm, local_directory)


def test_going_back_and_committing_again_reads_as_if_the_first_time_had_not_been(
    provider_jvm: ProviderJvm, local_directory: str
) -> None:
    model = VersionsModel(3)
    history: list[ModelStep] = [
        *(("put", 0, 3, WordValue(2, 1), 0), ("commit",)),
        *(("put", 1, 3, WordValue(2, 2), 0), ("commit",), ("open_reader", 0)),
        *(("begin", 1), ("read_all",), ("remove", 0, 2), ("put", 0, 1, WordValue(5, 3), 0)),
        *(("look_up", 0), ("commit",)),
    ]
    take(model, history)
    model.run_on(provider_jvm, local_directory)
    assert model.held == ["2/4", "1/1", EMPTY]
    assert model.states["2/4"] == {0: WordValue(5, 3), 2: WordValue(2, 1)}


def test_a_map_that_was_undone_half_way_is_not_read_any_more(
    provider_jvm: ProviderJvm, local_directory: str
) -> None:
    gone = "error version 1 is not held any more"
    lines = {
        "begin head": "",
        f"puts 1,2,3 {WordValue(2, 1)}": "",
        "commit 1/1": "",
        "begin 1/1": "",
        f"put 1 {WordValue(2, 2)}": "",
        "remove 2": "",
        f"put 3 {WordValue(2, 3)}": "",
        "commit 2/2": "",
        "fail 2": "",
        "begin 0/0": "error as asked for",
        "fail -1": "",
        "entries 2/2": "error version 2 is not held any more",
        "entries 1/1": gone,
        "get 1/1 2": gone,
        "scan 1/1 101": gone,
    }
    versions = provider_jvm.new("VersionsScript", True, 3, 0, local_directory)
    results = results_on(versions, *lines)
    assert [result.split(";")[0] for result in results] == list(lines.values())


@dataclass(frozen=True)
class LimitedBatch:
    """A batch that first removes keys, then puts keys."""

    removed: range
    put: range
    words: int


ranges = st.builds(lambda start, count: range(start, start + count), keys, st.integers(0, 120))
limits = st.integers(1 << 13, 1 << 18)
limited_batches = st.builds(LimitedBatch, ranges, ranges, st.sampled_from([1, 5, 50, 400]))


@pytest.mark.parametrize("with_prefix", [False, True])
def test_a_batch_that_exceeds_the_memory_limit_changes_nothing(
    provider_jvm: ProviderJvm, with_prefix: bool
) -> None:
    @examples(20)
    @given(st.lists(limited_batches, max_size=6), limits)
    @example([LimitedBatch(range(0), range(9), 5), LimitedBatch(range(9), range(9), 5)], 1 << 14)
    def agree(batches: list[LimitedBatch], limit_bytes: int) -> None:
        lines: list[str] = []
        for number, batch in enumerate(batches):
            lines += ["begin head", *(f"remove {key}" for key in batch.removed)]
            lines += [f"put {key} {WordValue(batch.words, number)}" for key in batch.put]
            lines += [f"finish {number:x}", "entries head"]
        versions = provider_jvm.new("VersionsScript", with_prefix, 2, limit_bytes, "")
        results = results_on(versions, *lines)
        outcomes = [line.split(";")[0] for line in results if line.split(";")[0] in OUTCOMES]
        states = [results[n] for n, line in enumerate(lines) if line == "entries head"]
        state: dict[int, WordValue] = {}
        for number, batch in enumerate(batches):
            if outcomes[number] == "committed":
                state = {key: value for key, value in state.items() if key not in batch.removed}
                state |= dict.fromkeys(batch.put, WordValue(batch.words, number))
            assert states[number] == f"{shown(state)};{len(state)}"

    agree()


def test_a_commit_never_exceeds_the_memory_limit_to_free_memory(provider_jvm: ProviderJvm) -> None:
    lines = ["begin head", f"puts {','.join(map(str, range(2000)))} {WordValue(20, 1)}", "finish 1"]
    removed = [key for key in range(2000) if key % 9 > 3]
    lines += ["begin head", *(f"remove {key}" for key in removed), "finish 2"]
    outcomes = set[str]()
    for limit_bytes in range(3 << 18, 3 << 19, 1 << 17):
        versions = provider_jvm.new("VersionsScript", False, 2, limit_bytes, "")
        outcomes.add(results_on(versions, *lines)[-1])
    assert outcomes == {"aborted;2000", f"committed;{2000 - len(removed)}"}


@pytest.mark.parametrize("with_prefix", [False, True])
def test_retained_versions_hold_the_state_and_the_changes_of_each(
    provider_jvm: ProviderJvm, with_prefix: bool, local_directory: str
) -> None:
    choice = random.Random(1)
    state_bytes = len(MANY_KEYS) * RECORD_BYTES
    lines = ["begin head", f"puts {','.join(map(str, MANY_KEYS))} {WordValue(20, 0)}", "finish 1"]
    for batch in range(40):
        keys = ",".join(map(str, choice.sample(MANY_KEYS, len(MANY_KEYS) // 10)))
        lines += ["begin head", f"puts {keys} {WordValue(20 + batch % 2, batch)}"]
        lines += [f"finish {batch + 2:x}", "bytes"]
    versions = provider_jvm.new("VersionsScript", with_prefix, 3, 0, local_directory)
    results = results_on(versions, *lines)
    held = [int(results[n].split(";")[0]) for n, line in enumerate(lines) if line == "bytes"]
    changes_of_two_batches = 2 * state_bytes // 10
    assert max(held) < 2 * state_bytes + 2 * changes_of_two_batches + SLACK_BYTES
