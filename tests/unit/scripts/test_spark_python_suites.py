"""The script that runs Spark's Python suites reads the outcomes of a small suite correctly."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.spark_python_suites.__main__ import EXPECTED, SUITES, run, verdict_on
from scripts.spark_suites.verdicts import Outcome, read_expectations

SUITE = """
import unittest


class OfSpark(unittest.TestCase):
    def test_that_passes(self):
        pass

    def test_that_fails(self):
        self.assertEqual(1, 2)

    @unittest.skip("elsewhere")
    def test_that_is_skipped(self):
        raise AssertionError
"""


def test_outcomes_of_a_suite_come_from_a_checkout(tmp_path: Path) -> None:
    folder = tmp_path / "python" / "pyspark" / "sql" / "tests" / "pandas" / "streaming"
    folder.mkdir(parents=True)
    for package in (folder.parents[1], folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "test_tws_tester.py").write_text(SUITE)
    outcomes = run(Path(sys.executable), tmp_path, "test_tws_tester", minutes=10)
    assert {(outcome.test, outcome.outcome) for outcome in outcomes} == {
        ("OfSpark.test_that_passes", "passed"),
        ("OfSpark.test_that_fails", "failed"),
        ("OfSpark.test_that_is_skipped", "ignored"),
    }
    assert [
        outcome.error.startswith("AssertionError: 1 != 2") for outcome in outcomes if outcome.error
    ] == [True]
    assert run(Path(sys.executable), tmp_path, "test_that_is_missing", minutes=10)[0].outcome == (
        "aborted"
    )


def test_tests_that_are_to_fail_are_of_suites_that_run() -> None:
    expected = read_expectations(EXPECTED.read_text(encoding="utf-8"))
    assert {each.suite for each in expected} <= set(SUITES)
    name = "TransformWithStateInPandasTests.test_schema_evolution_fails"
    suite = "test_pandas_transform_with_state"
    assert verdict_on(suite, [Outcome(name, "failed", stores=1)]).faults == []
    assert verdict_on(suite, [Outcome(name, "passed", stores=1)]).faults != []
    assert verdict_on(suite, [Outcome("Other.test", "failed", stores=1)]).faults != []
