"""Seeds for tests with random values: a random seed in each run, and fixed seeds for soak tests.

The environment variable TEST_SEED repeats a run. With CI set, the seed is the same every time, like
the examples of Hypothesis. The test draws the seed while it runs, because all xdist workers must
collect the same tests.
"""

from __future__ import annotations

import os
from secrets import randbelow
from typing import Any

import pytest

_SEED_OF_CI = "1"


def seeds(soaks: int) -> list[Any]:
    """Parameters of a test: None for a random seed, and the seeds of `soaks` soak tests."""
    soaked = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(soaks)]
    return [pytest.param(None, id="drawn"), *soaked]


def drawn(seed: int | None) -> int:
    """The seed of a parameter. For None, draw a seed and print it."""
    if seed is not None:
        return seed
    chosen = _SEED_OF_CI if "CI" in os.environ else str(randbelow(1 << 32))
    seed = int(os.environ.get("TEST_SEED", chosen))
    print(f"TEST_SEED={seed}")
    return seed
