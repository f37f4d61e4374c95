"""Over hundreds of batches, a store's total writes and a restore's reads stay within bounds.

Maintenance follows every batch, so that snapshots and merged files are written once they are due.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm

pytestmark = pytest.mark.spark

BATCHES = 260
LARGE = 4000
MAX_WRITTEN = 3.0
MAX_READ = 3.0
# `MAX_READ` plus the cost of opening files, because the provider estimates a snapshot's size.
MAX_COST = 5.0
# The byte cost of opening a file, the number of small files in a merge, and the number of versions
# beside the newest that can be undone in memory.
OPENING_BYTES = 4096
MERGE_WIDTH = 64
KEPT_IN_MEMORY = 1
# The size of a file's schemas and checksums, whatever the rows are.
FILE_BYTES = 2000
UNREPORTED = "stateStore.coordinatorReportSnapshotUploadLag=false"


@dataclass(frozen=True, slots=True)
class ScriptedBatch:
    """A batch with ranges of keys in the script's notation; `words` is the length of the put
    values."""

    put: str = "-"
    remove: str = "-"
    words: int = 3

    def lines(self, number: int) -> list[str]:
        changes = [f"put {self.put} {self.words}:{number}", f"remove {self.remove}"]
        return ["begin", *changes, "commit", "maintain"]


def listed(numbers: list[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


def few_of_many(chance: random.Random) -> Iterator[ScriptedBatch]:
    for _ in range(BATCHES):
        yield ScriptedBatch(listed(chance.sample(range(LARGE), 40)))


def one_of_many(chance: random.Random) -> Iterator[ScriptedBatch]:
    for _ in range(BATCHES):
        yield ScriptedBatch(str(chance.randrange(LARGE)))


def all_each_time(chance: random.Random) -> Iterator[ScriptedBatch]:
    for _ in range(BATCHES):
        yield ScriptedBatch(f"0-{LARGE // 10 - 1}")


def growing(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        start = LARGE + number * 50
        yield ScriptedBatch(f"{start}-{start + 49}")


def growing_values(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        yield ScriptedBatch(listed(chance.sample(range(LARGE), 40)), words=3 + number // 20)


def shrinking(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        start = number * LARGE // BATCHES
        yield ScriptedBatch(remove=f"{start}-{(number + 1) * LARGE // BATCHES - 1}")


def shrinking_while_others_change(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        start = number * LARGE // BATCHES
        end = (number + 1) * LARGE // BATCHES
        kept = [chance.randrange(end, LARGE) for _ in range(10) if end < LARGE]
        yield ScriptedBatch(listed(sorted(set(kept))), f"{start}-{end - 1}")


def coming_and_going(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        start = LARGE + number * 40
        leaving = start - LARGE if number % 60 < 30 else start - 40
        yield ScriptedBatch(f"{start}-{start + 39}", f"{leaving}-{leaving + 39}")


def emptied_and_filled(chance: random.Random) -> Iterator[ScriptedBatch]:
    for number in range(BATCHES):
        everything = f"0-{LARGE - 1}"
        yield (
            ScriptedBatch(remove=everything)
            if number % 30 == 10
            else (
                ScriptedBatch(everything)
                if number % 30 == 20
                else ScriptedBatch(listed(chance.sample(range(50), 9)))
            )
        )


Pattern = Callable[[random.Random], Iterator[ScriptedBatch]]
PATTERNS: list[Pattern] = [
    *(few_of_many, one_of_many, all_each_time, growing, growing_values),
    *(shrinking, shrinking_while_others_change, coming_and_going, emptied_and_filled),
]


@pytest.mark.parametrize("min_changelogs", [1, 10])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_written_is_less_than_three_times_the_changelogs_and_restores_are_short(
    provider_jvm: ProviderJvm, tmp_path: Path, pattern: Pattern, min_changelogs: int
) -> None:
    minimum = f"stateStore.minDeltasForSnapshot={min_changelogs}"
    lines = [f"start {minimum} minBatchesToRetain=2 {UNREPORTED}"]
    loaded = ScriptedBatch(f"0-{LARGE // 10 - 1}" if pattern is all_each_time else f"0-{LARGE - 1}")
    batches = [loaded, *pattern(random.Random(1))]
    for number, batch in enumerate(batches):
        lines += batch.lines(number)
    provider = provider_jvm.new("ProviderScript", str(tmp_path))
    results = provider.run("\n".join(lines)).split("\n")
    measured = [
        tuple(map(int, result.split()))
        for line, result in zip(lines, results, strict=True)
        if line == "maintain"
    ]
    first_changelogs, first_snapshots, *_ = measured[0]
    changelogs, snapshots, *_ = measured[-1]
    changes = changelogs - first_changelogs
    amplification = (changes + snapshots - first_snapshots) / changes
    worst_read = worst_cost = 0.0
    for number, (written, _, read, _, files) in enumerate(measured):
        unconsidered = measured[max(number + 1 - min_changelogs, 0) : number + 1]
        state_bytes = max(state for *_, state, _ in unconsidered) + FILE_BYTES
        considered = read - written + unconsidered[0][0]
        worst_read = max(worst_read, considered / state_bytes)
        cost = considered + OPENING_BYTES * (files - len(unconsidered))
        worst_cost = max(worst_cost, cost / (state_bytes + OPENING_BYTES))
        assert files <= 1 + MERGE_WIDTH + KEPT_IN_MEMORY + BATCHES // MERGE_WIDTH
    assert amplification < MAX_WRITTEN
    assert worst_read <= MAX_READ
    assert worst_cost <= MAX_COST


@pytest.mark.parametrize("changes", [1, 30, 700])
def test_a_large_state_that_changes_little_is_not_rewritten_nor_left_in_many_files(
    provider_jvm: ProviderJvm, tmp_path: Path, changes: int
) -> None:
    """By bytes alone, no snapshot is due for thousands of batches."""
    chance = random.Random(2)
    large = 20 * LARGE
    lines = [f"start stateStore.minDeltasForSnapshot=1 {UNREPORTED}"]
    lines += [*ScriptedBatch(f"0-{large - 1}", words=20).lines(0)[:-1], "write-if-due"]
    kinds = [f"bytes {kind}" for kind in ("changelog", "merged", "snapshot")]
    before = len(lines)
    lines += kinds
    for number in range(BATCHES):
        batch = ScriptedBatch(listed(chance.sample(range(large), changes)))
        lines += [*batch.lines(number)[:-1], "write-if-due", "chain"]
    lines += kinds
    results = provider_jvm.new("ProviderScript", str(tmp_path)).run("\n".join(lines)).split("\n")
    chains = [int(result) for line, result in zip(lines, results, strict=True) if line == "chain"]
    first = list(map(int, results[before : before + 3]))
    last = list(map(int, results[-3:]))
    changelogs, merged, snapshots = (b - a for a, b in zip(first, last, strict=True))
    assert (changelogs + merged + snapshots) / changelogs < MAX_WRITTEN
    assert merged <= changelogs
    if changes < 700:
        assert snapshots == 0
    assert max(chains) <= 1 + MERGE_WIDTH + KEPT_IN_MEMORY + BATCHES // MERGE_WIDTH
