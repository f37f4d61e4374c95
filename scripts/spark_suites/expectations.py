"""The tests of Spark that fail on cowstate, with the reasons: `expected.toml`.

Each entry has the names of suites, the names of tests, and the reason. A name that ends with `*`
stands for all that begin so. `sometimes = true` says that chance decides whether they fail.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A test, or all tests whose names begin so, which fail for a reason."""

    suite: str
    test: str
    reason: str
    sometimes: bool = False

    def covers(self, test: str) -> bool:
        """Whether it is about this test of its suite."""
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test


def read_expectations(text: str) -> list[Expectation]:
    """The entries of a table. A suite or test that is there twice is an error."""
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
