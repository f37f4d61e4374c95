"""Over hundreds of epochs, a heap subtask writes little more than its changes, and restores stay
short.

See kept_chains. RocksDB with snapshots as rows behaves the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from spark_state.checkpointing.kept_state import Counts
from spark_state.checkpointing.snapshot_policy import MANY_FILES
from tests.support.operators.kept_chains import KeptChain

GROUPS, OF_GROUP = 40, 25_000
SIZE = GROUPS * OF_GROUP
EPOCHS = 360
MAX_WRITTEN = 3.0

Churn = Callable[[np.random.Generator, int], Counts]
"""How many rows of each key group an epoch changes. The `share` of those below is a number of
thousandths of the state."""


def spread(chance: np.random.Generator, rows: int, weights: Counts) -> Counts:
    """Draw `rows` changed rows over key groups by weight, with at most all entries of a key
    group."""
    return np.minimum(chance.multinomial(rows, weights / weights.sum()), OF_GROUP)


def weights(hot: range, of_hot: int) -> Counts:
    """Weights that give `of_hot` percent of the changes to the hot key groups."""
    is_hot = np.isin(np.arange(GROUPS), hot)
    return np.where(is_hot, of_hot * (GROUPS - len(hot)), (100 - of_hot) * len(hot))


def churn(share: int, of_groups: Counts) -> Churn:
    return lambda chance, _: spread(chance, SIZE * share // 1000, of_groups)


def bursts(share: int) -> Churn:
    """Change little in most epochs, and half of the state in every 29th epoch."""

    def changed(chance: np.random.Generator, epoch: int) -> Counts:
        return spread(chance, SIZE * (500 if epoch % 29 == 0 else share) // 1000, EVEN)

    return changed


def wandering(share: int) -> Churn:
    """Change eight key groups at a time, and choose another eight every 50 epochs."""

    def changed(chance: np.random.Generator, epoch: int) -> Counts:
        return spread(chance, SIZE * share // 1000, np.roll(CONTIGUOUS, epoch // 50 * 7))

    return changed


EVEN = np.ones(GROUPS, np.int64)
CONTIGUOUS = weights(range(16, 24), 100)
SCATTERED = weights(range(0, GROUPS, 5), 100)
LUKEWARM = weights(range(16, 24), 80)
LUKEWARM_SCATTERED = weights(range(0, GROUPS, 5), 80)

PATTERNS = {
    "even 1%": churn(10, EVEN),
    "even 5%": churn(50, EVEN),
    "even 100%": churn(1000, EVEN),
    "even 0.3%": churn(3, EVEN),
    "hot fifth": churn(10, CONTIGUOUS),
    "hot fifth, scattered": churn(10, SCATTERED),
    "hot fifth, others too": churn(10, LUKEWARM),
    "hot fifth, scattered, others too": churn(10, LUKEWARM_SCATTERED),
    "one hot key group": churn(5, weights(range(7, 8), 100)),
    "bursts": bursts(1),
    "wandering": wandering(10),
}
UNLIKE = ("even 1%", "hot fifth, scattered, others too", "bursts")


@cache
def after(pattern: str, epochs_of_run: int, delay: float) -> KeptChain:
    """Run many epochs, `epochs_of_run` in each run, and return the chain. Tests only read the
    chain."""
    chance = np.random.default_rng(1)
    chain = KeptChain(np.full(GROUPS, OF_GROUP), delay=delay)
    chain.run([np.full(GROUPS, OF_GROUP)])
    chain.changes.clear()  # The creation of the state does not count.
    for first in range(0, EPOCHS, epochs_of_run):
        epochs = range(first, min(first + epochs_of_run, EPOCHS))
        chain.run(PATTERNS[pattern](chance, epoch) for epoch in epochs)
    return chain


# The shortest runs and those of several snapshots have each pattern; the other lengths have three
# patterns with little in common.
RUNS = [
    *((pattern, epochs) for pattern in PATTERNS for epochs in (1, 40)),
    *((pattern, epochs) for pattern in UNLIKE for epochs in (12, EPOCHS)),
]


@pytest.mark.parametrize(("pattern", "epochs_of_run"), RUNS)
@pytest.mark.long
def test_less_than_three_times_the_changes_is_written_and_restores_stay_short(
    pattern: str, epochs_of_run: int
) -> None:
    """A restore needs twice the state. It needs more if the parts, each a quarter of the state,
    fall behind the runs, or if there are too few epochs for a snapshot."""
    chain = after(pattern, epochs_of_run, 5)
    of_epoch, largest = int(np.median(chain.changes)), max(chain.changes)
    of_run = min(epochs_of_run, chain.min_changelogs + 5) * of_epoch
    assert chain.amplification < MAX_WRITTEN
    needed = 2.5 * SIZE + 2 * largest + chain.min_changelogs * of_epoch + 4 * of_run
    assert chain.most_needed <= needed
    assert chain.most_handles <= 3 * MANY_FILES


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_a_restore_of_a_long_run_needs_less_than_three_times_its_state(
    pattern: str,
) -> None:
    chain = after(pattern, EPOCHS, 1)
    of_epoch, largest = int(np.median(chain.changes)), max(chain.changes)
    assert chain.amplification < MAX_WRITTEN
    assert chain.most_needed <= 2.75 * SIZE + largest + (chain.min_changelogs + 2) * of_epoch


@pytest.mark.parametrize("share", [0.2, 0.05, pytest.param(0.02, marks=pytest.mark.soak)])
@pytest.mark.long
def test_few_changes_of_a_large_state_are_not_written_with_all_of_it(share: float) -> None:
    """`share` is in percent of the state. The epochs change the state twice, or number ten
    thousand."""
    of_epoch = round(SIZE * share / 100)
    chance = np.random.default_rng(1)
    chain = KeptChain(np.full(GROUPS, OF_GROUP))
    chain.run([np.full(GROUPS, OF_GROUP)])
    chain.changes.clear()
    epochs = min(2 * SIZE // of_epoch, 10_000)
    chain.run(spread(chance, of_epoch, EVEN) for _ in range(epochs))
    assert chain.in_merged > 0
    assert chain.amplification < MAX_WRITTEN
    assert chain.most_needed <= 2.5 * SIZE
    assert chain.most_handles <= 1.5 * MANY_FILES


@pytest.mark.parametrize("pattern", ["hot fifth", "one hot key group", "hot fifth, others too"])
def test_cold_key_groups_are_not_written_again_and_again(pattern: str) -> None:
    written = after(pattern, EPOCHS, 1).written_of
    hot = [7] if pattern == "one hot key group" else [*range(16, 24)]
    cold = np.delete(written, hot)

    assert cold.max() <= 2
    assert written[hot].min() >= cold.max()


def test_at_one_percent_churn_an_epoch_writes_two_percent_of_the_state() -> None:
    """The two percent include the epoch's share of snapshots."""
    chain = after("even 1%", EPOCHS, 1)
    assert (chain.changed + chain.in_snapshots) / EPOCHS <= 0.0201 * SIZE
