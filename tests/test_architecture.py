"""The invariants in ARCHITECTURE.md name modules and tests that there are."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = re.findall(
    r"^\| (I\d) [^|]+\|[^|]+\|([^|]+)\|([^|]+)\|$",
    (ROOT / "ARCHITECTURE.md").read_text(),
    re.MULTILINE,
)


def test_all_invariants_are_there() -> None:
    assert [name for name, _, _ in ROWS] == [f"I{number}" for number in range(1, 10)]


@pytest.mark.parametrize(("name", "modules", "tests"), ROWS)
def test_an_invariant_names_modules_and_tests_that_there_are(
    name: str, modules: str, tests: str
) -> None:
    named_modules, named_tests = (re.findall(r"`([^`]+)`", text) for text in (modules, tests))
    assert named_modules
    assert named_tests
    missing = [module for module in named_modules if importlib.util.find_spec(module) is None]
    missing += [test for test in named_tests if not (ROOT / test).is_file()]
    assert not missing, f"{name} names what is not there"
