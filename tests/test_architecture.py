"""ARCHITECTURE.md is short, and names only existing modules, folders and tests."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MOST_WORDS = 1200
INVARIANTS = re.findall(r"^\| (I\d) [^|]+\|[^|]+\|([^|]+)\|([^|]+)\|$", TEXT, re.MULTILINE)
PACKAGES = ("checkpoint_store", "cowstate", "datasources", "spark_state")
MODULES = sorted(set(re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`", TEXT)))
PATHS = sorted(set(re.findall(r"`((?:[\w-]+/)+[\w.-]+|\w+\.cfg)`|\]\(([^)#]+)", TEXT)))


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(TEXT.split()) <= MOST_WORDS


def test_all_invariants_are_there_each_with_modules_and_tests() -> None:
    assert [name for name, _, _ in INVARIANTS] == [f"I{number}" for number in range(1, 10)]
    assert all("`" in modules and "`tests/" in tests for _, modules, tests in INVARIANTS)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_it_names_is_there(module: str) -> None:
    package, _, name = module.rpartition(".")
    if importlib.util.find_spec(module) is None:
        assert hasattr(importlib.import_module(package), name)


@pytest.mark.parametrize("path", ["".join(pair) for pair in PATHS])
def test_a_path_that_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
