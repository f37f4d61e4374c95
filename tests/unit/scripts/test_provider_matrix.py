"""The provider's matrix runs all tests of the provider."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import provider_matrix

ROOT = provider_matrix.ROOT
# Modules that only the provider's tests import. Tests of operators also use `provider_jobs`.
ITS_MODULES = {path.stem for path in (ROOT / "tests" / "support").rglob("provider_*.py")} | {
    *("adoption_jobs", "map_model", "misbehaving_gateway", "operator_jobs", "planned_queries"),
    *("rescaled_jobs", "state_directories", "stopped_changes"),
}
ITS_NAMES = {*(ITS_MODULES - {"provider_jobs"}), "ProviderRun", "COWSTATE", "PROVIDER_CLASS"}
ITS_TOOLS = re.compile(rf"\b(?:{'|'.join(sorted(ITS_NAMES))})\b")


def test_each_file_with_the_providers_tools_is_in_the_matrix() -> None:
    folders = ("spark", "property", "fault", "compatibility", "contract")
    paths = [path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    with_tools = {
        str(path.relative_to(ROOT)) for path in paths if ITS_TOOLS.search(path.read_text())
    }
    assert "tests/spark/provider/test_provider_restore.py" in with_tools
    assert "tests/fault/provider/test_full_local_directories.py" in with_tools
    assert with_tools - set(provider_matrix.files()) == set()


def test_each_module_with_the_providers_tools_is_there() -> None:
    there = {path.stem for path in (ROOT / "tests" / "support").rglob("*.py")}
    assert ITS_MODULES - there == set()


def test_a_java_that_is_not_there_is_asked_for_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME_21", str(tmp_path))
    for major in (21, 5):
        with pytest.raises(SystemExit, match=f"set JAVA_HOME_{major} to the home of one"):
            provider_matrix.java_home(major)
