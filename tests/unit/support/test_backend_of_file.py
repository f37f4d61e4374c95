"""Every test file of operators gets a backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.backend_of_file import BACKENDS, ON_BOTH, backends_of, only_backend

SPARK = Path(__file__).resolve().parents[2] / "spark"
OPERATORS = [path for path in sorted(SPARK.rglob("test_*.py")) if backends_of(path, "heap")]


def test_each_backend_has_a_quarter_of_the_files_or_more() -> None:
    for backend in BACKENDS:
        files = [path for path in OPERATORS if backends_of(path, None) == (backend,)]
        assert 4 * len(files) >= len(OPERATORS)


def test_a_file_that_has_operators_by_its_stream_only_gets_a_backend() -> None:
    assert SPARK / "queries" / "test_run_identity.py" in OPERATORS


def test_the_main_files_run_on_both() -> None:
    assert {path.name for path in OPERATORS if backends_of(path, None) == BACKENDS} == ON_BOTH


def test_a_file_that_chooses_or_has_no_operator_is_left_alone() -> None:
    for name in ("operator/test_backends.py", "tables/test_table_sink.py"):
        assert backends_of(SPARK / name, None) == backends_of(SPARK / name, "rocksdb") == ()


def test_a_choice_in_a_file_has_a_name_of_its_own() -> None:
    """`backend` is a fixture of the whole test run, on which the session depends."""
    for path in sorted(SPARK.rglob("test_*.py")):
        assert 'parametrize("backend"' not in path.read_text(), path.name


def test_a_run_about_one_backend_has_all_files_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_BACKEND", "rocksdb")
    assert {backends_of(path, only_backend()) for path in OPERATORS} == {("rocksdb",)}
    monkeypatch.setenv("TEST_BACKEND", "disk")
    with pytest.raises(ValueError, match="'disk'; allowed are heap, rocksdb"):
        only_backend()
    monkeypatch.delenv("TEST_BACKEND")
    assert only_backend() is None
