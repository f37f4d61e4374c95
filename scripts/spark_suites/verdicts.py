"""Judges the outcomes of a suite, given the tests that are expected to fail: `expected.toml`. Pure.

Each entry of the table has the names of suites, the names of tests, and the reason. A name that
ends with `*` stands for all names with this beginning. `sometimes = true` says that chance decides
whether the tests fail.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TABLE = Path(__file__).with_name("expected.toml")
FAILED = ("failed", "aborted")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A test that is expected to fail for a reason, or all tests whose names have the same
    beginning. `sometimes`: True if chance decides whether the tests fail."""

    suite: str
    test: str
    reason: str
    sometimes: bool = False

    def covers(self, test: str) -> bool:
        """True if the expectation is about test `test` of the suite."""
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a test. `test`: empty for an outcome of the whole suite; `stores`: the number of
    stores that the test opened."""

    test: str
    outcome: str
    ms: int = 0
    stores: int = 0
    error: str = ""

    @property
    def has_failed(self) -> bool:
        """True if the test failed or was aborted. A canceled test has not failed: its suite says
        that the test cannot run here."""
        return self.outcome in FAILED


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcomes of a suite's tests. `expected`: the expected failures, each with its reason;
    `faults`: the faults of the run, in words."""

    suite: str
    outcomes: Sequence[Outcome]
    expected: Sequence[tuple[Outcome, str]] = ()
    faults: Sequence[str] = field(default_factory=list)

    def count(self, *outcomes: str) -> int:
        """The number of tests with one of these outcomes."""
        return sum(outcome.outcome in outcomes for outcome in self.outcomes)

    @property
    def stores(self) -> int:
        """The number of stores of the tested provider that tests opened."""
        return sum(outcome.stores for outcome in self.outcomes)

    @property
    def seconds(self) -> int:
        """The seconds that the tests took together."""
        return round(sum(outcome.ms for outcome in self.outcomes) / 1000)


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


def judge(
    suite: str, outcomes: Sequence[Outcome], expectations: Iterable[Expectation] | None
) -> Verdict:
    """Judge a run of a suite on cowstate. Without expectations the run is on another provider,
    whose failures are only for comparison."""
    if expectations is None:
        return Verdict(suite, outcomes, faults=[] if outcomes else ["no test ran"])
    about = [expectation for expectation in expectations if expectation.suite == suite]
    covering = {
        outcome.test: expectation
        for outcome in outcomes
        for expectation in about
        if expectation.covers(outcome.test)
    }
    failed = [outcome for outcome in outcomes if outcome.has_failed]
    expected = [(o, covering[o.test].reason) for o in failed if o.test in covering]
    passed = [outcome.test for outcome in outcomes if outcome.outcome == "passed"]
    return Verdict(
        suite,
        outcomes,
        expected,
        [
            *(failure(outcome) for outcome in failed if outcome.test not in covering),
            *(
                f"passed, and was expected to fail: {test}"
                for test in passed
                if test in covering and not covering[test].sometimes
            ),
            *(
                f"was expected to fail, and did not run: {expectation.test}"
                for expectation in about
                if not any(expectation.covers(outcome.test) for outcome in outcomes)
            ),
            *unused(outcomes),
        ],
    )


def that_ran(expectations: Iterable[Expectation], outcomes: Sequence[Outcome]) -> list[Expectation]:
    """The expectations about tests that ran. If only some tests were asked for, other tests may not
    run."""
    return [
        expectation
        for expectation in expectations
        if any(expectation.covers(outcome.test) for outcome in outcomes)
    ]


def failure(outcome: Outcome) -> str:
    """The fault of an unexpected failure."""
    return f"failed: {outcome.test or 'the suite'}: {first_line(outcome.error)}"


def unused(outcomes: Sequence[Outcome]) -> list[str]:
    """The faults of a run that tells nothing about the provider."""
    if not outcomes:
        return ["no test ran"]
    used = any(outcome.stores for outcome in outcomes)
    return [] if used else ["no store of the provider was opened"]


def first_line(error: str) -> str:
    """The message of an error, without the traceback."""
    return error.partition("\n\tat ")[0].partition("\n")[0][:300]
