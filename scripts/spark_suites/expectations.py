"""Tests of Spark that fail on cowstate, with the reasons: `expected.toml`.

Each entry has the names of suites, the names of tests, and the reason. A name that ends with `*`
stands for all names with this beginning. `sometimes = true` says that chance decides whether the
tests fail.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A test, or all tests with the same beginning of the name, expected to fail for a reason."""

    suite: str
    test: str
    reason: str
    sometimes: bool = False

    def covers(self, test: str) -> bool:
        """True if the expectation is about test `test` of the suite."""
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test


def read_expectations(text: str) -> list[Expectation]:
    """Read the entries of a table. Raises ValueError if a test of a suite has two entries."""
    expectations = [
        Expectation(suite, test, " ".join(entry["reason"].split()), entry.get("sometimes", False))
        for entry in tomllib.loads(text)["expected"]
        for suite in entry["suites"]
        for test in entry["tests"]
    ]
    places = [(expectation.suite, expectation.test) for expectation in expectations]
    twice = sorted({place for place in places if places.count(place) > 1})
    if twice:
        raise ValueError(f"expected.toml has these twice: {twice}")
    return expectations
