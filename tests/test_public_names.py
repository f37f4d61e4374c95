"""The public names of each package have docstrings. The page of the API lists the names: a change
of a public name changes the page, and is a decision."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

PACKAGES = pytest.mark.parametrize("package", ["checkpoint_store", "datasources", "spark_state"])


def documented(module: ModuleType, name: str) -> bool:
    return bool(inspect.getdoc(getattr(module, name)))


@PACKAGES
def test_every_public_name_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert inspect.getdoc(module)
    assert [name for name in module.__all__ if not documented(module, name)] == []


@PACKAGES
def test_tab_completion_offers_names_that_are_not_imported_yet(package: str) -> None:
    script = f"import {package}; print(*dir({package}))"
    listed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {*importlib.import_module(package).__all__} - {*listed} == set()
