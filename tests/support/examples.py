"""The number of examples that Hypothesis tries of a property.

A run of all tests tries few, and other ones each time. `TEST_EXAMPLES=10` tries ten times as many.
"""

from __future__ import annotations

import os

from hypothesis import settings

_TIMES = int(os.environ.get("TEST_EXAMPLES", "1"))


def examples(number: int) -> settings:
    """Settings with `number` examples in a run of all tests."""
    return settings(max_examples=number * _TIMES)
