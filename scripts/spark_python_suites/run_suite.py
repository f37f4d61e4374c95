"""Runs a module of Spark's tests with cowstate enabled in its sessions, in a separate process.

    python -m scripts.spark_python_suites.run_suite MODULE PYTHON_DIRECTORY_OF_SPARK OUTCOMES

PySpark comes from the environment, its tests from the checkout. Each outcome is a line of JSON in
the form of `scripts.spark_suites.verdicts.Outcome`. Its `stores` counts the operators that the test
has planned in an enabled session.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
import traceback
import unittest
from pathlib import Path
from typing import Any

import pyspark
import pyspark.sql
from pyspark import cloudpickle
from pyspark.sql import GroupedData

import spark_state

PLANNED: list[str] = []
"""A name for each operator that was planned."""
COUNTED: set[Any] = set()
"""Methods that note the planned operators."""


class Outcomes(unittest.TestResult):
    """Writer of the outcome of each test, at the end of the test."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._begun = time.monotonic()
        self._planned = 0

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - as unittest calls it
        """Note the start of a test. This method and the following methods replace methods of
        TestResult."""
        self._begun = time.monotonic()
        self._planned = len(PLANNED)
        super().startTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._note(test, "failed", err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._note(test, "failed", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._note(test, "ignored")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self._note(test, "failed", err)

    def _note(self, test: unittest.TestCase, outcome: str, error: Any = None) -> None:
        note = {
            "test": ".".join(test.id().rsplit(".", 2)[-2:]),
            "outcome": outcome,
            "ms": round(1_000 * (time.monotonic() - self._begun)),
            "stores": len(PLANNED) - self._planned,
            "error": _text(error[1]) if error else "",
        }
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps(note), file=file)


def _text(error: BaseException) -> str:
    """The message of an error, and then its traceback."""
    return "".join([*traceback.format_exception_only(error), *traceback.format_exception(error)])


def counted(method: Any) -> Any:
    """Wrap a method of GroupedData that plans an operator, to note the operator."""

    @functools.wraps(method)
    def plan(grouped: Any, *arguments: Any, **options: Any) -> Any:
        PLANNED.append(method.__name__)
        return method(grouped, *arguments, **options)

    COUNTED.add(plan)
    return plan


def enable_in_sessions(store: Path) -> None:
    """Enable cowstate in every session of Spark's test classes."""
    test_case: Any = importlib.import_module("pyspark.testing.sqlutils").ReusedSQLTestCase
    begin = test_case.setUpClass.__func__

    def set_up_class(cls: Any) -> None:
        begin(cls)
        cls.spark.conf.set("spark.cowstate.store", store.as_uri())
        spark_state.enable(cls.spark)
        for name in ("transformWithState", "transformWithStateInPandas"):
            method = getattr(GroupedData, name)
            if method not in COUNTED:
                setattr(GroupedData, name, counted(method))

    test_case.setUpClass = classmethod(set_up_class)


def main() -> None:
    module, python_directory, outcomes = sys.argv[1:]
    store = Path(outcomes).with_name("store")
    store.mkdir()
    pyspark.sql.__path__.append(str(Path(python_directory) / "pyspark" / "sql"))
    # Spark's testing modules look for SPARK_HOME, here the installed package.
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    enable_in_sessions(store)
    tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    # Workers and state hosts do not find the checkout.
    by_value: Any = cloudpickle.register_pickle_by_value
    by_value(importlib.import_module("pyspark.sql.tests"))
    tests.run(Outcomes(Path(outcomes)))


if __name__ == "__main__":
    main()
