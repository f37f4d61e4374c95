"""The verdict on a run of Spark's suites follows from outcomes and expectations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scripts.spark_suites import reports
from scripts.spark_suites.spark_builds import ROOT
from scripts.spark_suites.suite_jvm import read_outcomes
from scripts.spark_suites.suites import SUITES
from scripts.spark_suites.verdicts import (
    TABLE,
    Expectation,
    Outcome,
    judge,
    read_expectations,
    that_ran,
)

SUITE = "StreamSuite"
EXPECTED = [
    Expectation(SUITE, "looks inside", "it looks inside"),
    Expectation(SUITE, "iterator - *", "iterators differ"),
    Expectation("OtherSuite", "counts", "not this suite"),
]
INSIDE = Outcome("looks inside", "failed", stores=1)
ITERATORS = [Outcome(f"iterator - {codec}", "failed") for codec in ("lz4", "zstd")]
AS_EXPECTED = [INSIDE, *ITERATORS]


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    return list(judge(SUITE, outcomes, EXPECTED).faults)


def test_tests_that_fail_as_expected_are_no_fault_and_keep_their_reasons() -> None:
    verdict = judge(SUITE, [*AS_EXPECTED, Outcome("counts", "passed", ms=1499)], EXPECTED)
    assert verdict.faults == []
    assert [(outcome.test, reason) for outcome, reason in verdict.expected] == [
        ("looks inside", "it looks inside"),
        ("iterator - lz4", "iterators differ"),
        ("iterator - zstd", "iterators differ"),
    ]
    assert reports.numbers(verdict) == [1, 3, 0, 1, 1]


@pytest.mark.parametrize(
    ("outcomes", "fault"),
    [
        (
            [*AS_EXPECTED, Outcome("counts", "failed", error="E: 1 is not 2\n\tat S.scala")],
            "failed: counts: E: 1 is not 2",
        ),
        (
            [*AS_EXPECTED, Outcome("", "aborted", error="the JVM ended with status 3, see F")],
            "failed: the suite: the JVM ended with status 3, see F",
        ),
        (
            [INSIDE, ITERATORS[0], Outcome("iterator - zstd", "passed")],
            "passed, and was expected to fail: iterator - zstd",
        ),
        ([*ITERATORS, Outcome("counts", "passed", stores=1)], None),
        ([INSIDE], "was expected to fail, and did not run: iterator - *"),
    ],
)
def test_anything_unexpected_is_a_fault(outcomes: Sequence[Outcome], fault: str | None) -> None:
    assert faults(outcomes) == [fault or "was expected to fail, and did not run: looks inside"]


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_test_that_fails_sometimes_may_pass(outcome: str) -> None:
    sometimes = Expectation(SUITE, "races", "it is a race", sometimes=True)
    verdict = judge(SUITE, [Outcome("races", outcome, stores=1)], [sometimes])
    assert verdict.faults == []
    assert len(verdict.expected) == (outcome == "failed")


def test_nothing_is_expected_of_tests_that_were_not_asked_for() -> None:
    """A wildcard `*` in the table may stand for a requested test."""
    asked_for = [Outcome("iterator - lz4", "failed", stores=1)]
    verdict = judge(SUITE, asked_for, that_ran(EXPECTED, asked_for))
    assert verdict.faults == []
    assert [reason for _, reason in verdict.expected] == ["iterators differ"]


def test_a_run_that_never_used_the_provider_is_a_fault() -> None:
    unused = [Outcome(test.test, test.outcome) for test in AS_EXPECTED]
    assert faults(unused) == ["no store of the provider was opened"]


def test_a_suite_of_which_no_test_ran_is_a_fault_on_each_provider() -> None:
    assert "no test ran" in faults([])
    assert judge(SUITE, [], None).faults == ["no test ran"]


def test_failures_of_another_provider_are_counted_and_no_fault() -> None:
    verdict = judge(SUITE, [*AS_EXPECTED, Outcome("counts", "canceled")], None)
    assert verdict.faults == []
    assert reports.numbers(verdict) == [0, 3, 1, 1, 0]


def test_a_report_has_a_row_a_suite_and_columns_a_provider() -> None:
    cowstate = judge(SUITE, [*AS_EXPECTED, Outcome("counts", "passed", ms=2000)], EXPECTED)
    hdfs = judge("OtherSuite", [Outcome("counts", "passed", ms=3000)], None)
    assert reports.whole({"cowstate": [cowstate], "hdfs": [hdfs]})[3:] == [
        "| StreamSuite | 1 | 3 | 0 | 1 | 2 | - | - | - | - | - |",
        "| OtherSuite | - | - | - | - | - | 1 | 0 | 0 | 0 | 3 |",
        "| all | 1 | 3 | 0 | 1 | 2 | 1 | 0 | 0 | 0 | 3 |",
        "",
        "1 fail as expected: it looks inside",
        "    StreamSuite: looks inside",
        "2 fail as expected: iterators differ",
        "    StreamSuite: iterator - lz4",
        "    StreamSuite: iterator - zstd",
        "",
        "no faults",
    ]


def test_outcomes_of_a_jvm_that_was_killed_within_a_line_are_those_before_it() -> None:
    line = '{"test":"counts","outcome":"passed","ms":7,"stores":2,"error":""}'
    assert read_outcomes(f"{line}\n{line[:30]}") == [Outcome("counts", "passed", 7, 2)]


def test_a_test_is_in_the_table_once() -> None:
    entry = '[[expected]]\nsuites = ["A"]\ntests = ["b"]\nreason = """\nso\nit is\n"""\n'
    assert read_expectations(entry) == [Expectation("A", "b", "so it is")]
    with pytest.raises(ValueError, match=r"\('A', 'b'\)"):
        read_expectations(entry * 2)


def test_the_documentation_has_each_reason_of_the_table() -> None:
    page = " ".join((ROOT / "docs" / "reference" / "spark-suites.md").read_text().split())
    reasons = {entry.reason for entry in read_expectations(TABLE.read_text())}
    assert {reason for reason in reasons if reason not in page} == set()


def test_the_table_is_about_suites_that_run() -> None:
    suites = {suite.name for suite in SUITES if suite.class_for(is_cowstate=True)}
    assert len(suites) == len(SUITES)
    assert {entry.suite for entry in read_expectations(TABLE.read_text())} <= suites
