"""A processor runs with the driver's version of the user's modules, or fails with an error."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_state.errors import ConfigurationError
from spark_state.processor import module_sources
from spark_state.processor.module_sources import ModuleSource, load_processor, sources_of
from spark_state.processor.pickles import dumps

RULES = "FACTOR = {factor}{padding}\n"
COUNTING = """
from my_rules import FACTOR

class Counting:
    step = {step}{padding}

    def result(self):
        return self.step * FACTOR
"""
SCRIPT = """
import pickle, sys
from my_counting import Counting
from spark_state.processor.module_sources import sources_of
from spark_state.processor.pickles import dumps
data = dumps(Counting())
sys.stdout.buffer.write(pickle.dumps((data, sources_of(data))))
"""
Sent = tuple[bytes, tuple[ModuleSource, ...]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the user's two modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module_sources, "_loaded", {})
    write(tmp_path, step=1, factor=10)
    yield tmp_path
    for name in ("my_counting", "my_rules"):
        sys.modules.pop(name, None)


def write(folder: Path, step: int, factor: int) -> None:
    # Python compares a .pyc file with its source by size and by whole seconds.
    padding = "  #" + "-" * (step + factor)
    (folder / "my_rules.py").write_text(RULES.format(factor=factor, padding=padding))
    (folder / "my_counting.py").write_text(COUNTING.format(step=step, padding=padding))


def sent_by_driver(folder: Path) -> Sent:
    """Return the pickle and the module sources that a new driver would send now."""
    path = {"PYTHONPATH": f"{folder}:{Path.cwd()}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", SCRIPT]
    sent: Sent = pickle.loads(subprocess.run(command, capture_output=True, env=path).stdout)
    return sent


@pytest.mark.process
def test_modules_are_named_after_those_that_they_import(folder: Path) -> None:
    _, sources = sent_by_driver(folder)
    assert [source.name for source in sources] == ["my_rules", "my_counting"]


@pytest.mark.process
@pytest.mark.parametrize(("step", "factor", "expected"), [(2, 10, 20), (1, 30, 30), (1, 10, 10)])
def test_a_changed_module_is_imported_anew_with_those_that_import_it(
    folder: Path, step: int, factor: int, expected: int
) -> None:
    assert load_processor(*sent_by_driver(folder)).result() == 10
    write(folder, step, factor)
    assert load_processor(*sent_by_driver(folder)).result() == expected


@pytest.mark.process
def test_a_query_that_was_planned_before_the_change_is_refused(folder: Path) -> None:
    before = sent_by_driver(folder)
    load_processor(*before)
    write(folder, step=2, factor=10)
    load_processor(*sent_by_driver(folder))
    with pytest.raises(ConfigurationError, match=r"module my_\w+, .* has .*my_\w+\.py"):
        load_processor(*before)


@pytest.mark.process
def test_another_version_on_the_executor_is_refused(folder: Path) -> None:
    sent = sent_by_driver(folder)
    write(folder, step=2, factor=10)
    with pytest.raises(ConfigurationError, match="module my_"):
        load_processor(*sent)


def test_modules_of_packages_and_of_python_are_left_out() -> None:
    assert sources_of(dumps([Path, pytest.fixture, ConfigurationError])) == ()


def test_a_class_that_is_pickled_by_value_needs_the_modules_that_it_uses(folder: Path) -> None:
    rules = importlib.import_module("my_rules")

    class Notebook:
        def result(self) -> int:
            value: int = rules.FACTOR
            return value

    Notebook.__module__ = "__main__"
    pickled = dumps(Notebook())
    assert [source.name for source in sources_of(pickled)] == ["my_rules"]
    assert load_processor(pickled, sources_of(pickled)).result() == 10
