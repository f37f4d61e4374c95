"""Seeds of tests of random values: one that is drawn for each run, and others for soaks.

The environment variable TEST_SEED repeats a run. With CI set the seed is the same every time, as
the examples of Hypothesis are. Seeds are drawn while a test runs, because all workers of a test run
must collect the same tests.
"""

from __future__ import annotations

import os
from secrets import randbelow
from typing import Any

import pytest

_SEED_OF_CI = "1"


def seeds(soaks: int) -> list[Any]:
    """Parameters of a test: None, for a seed to draw, and the seeds of so many soaks."""
    soaked = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(soaks)]
    return [pytest.param(None, id="drawn"), *soaked]


def drawn(seed: int | None) -> int:
    """The seed of a parameter; if it is None, one that is drawn and printed."""
    if seed is not None:
        return seed
    chosen = _SEED_OF_CI if "CI" in os.environ else str(randbelow(1 << 32))
    seed = int(os.environ.get("TEST_SEED", chosen))
    print(f"TEST_SEED={seed}")
    return seed
