"""The trial on Spark 4.1 reports the differences between two runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import spark_4_1_trial
from scripts.spark_4_1.trial_queries import differences, folder_of, state_lines
from tests.support.provider.operator_jobs import OPERATOR_JOBS
from tests.support.provider.provider_jobs import Entry


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        ([], [], []),
        (["a", "b"], ["b", "a"], []),
        (["a"], [], ["run", "- a"]),
        ([], ["a"], ["run", "+ a"]),
        (["a", "b"], ["b", "b", "c"], ["run", "- a", "+ b", "+ c"]),
    ],
)
def test_what_one_run_has_more_of_is_told(
    expected: list[str], actual: list[str], told: list[str]
) -> None:
    assert differences("run", expected, actual) == told


def test_a_line_tells_batch_and_store_of_an_entry() -> None:
    assert state_lines({3: [Entry(1, 0, "('a',) (5,)")], 4: []}) == [
        "batch 3 leaves in store 1: ('a',) (5,)"
    ]


def test_each_query_has_a_folder_whose_name_needs_no_escapes() -> None:
    folders = {folder_of(Path(), name, "heap") for name in OPERATOR_JOBS}
    assert len(folders) == len(OPERATOR_JOBS)
    assert all(part.replace("-", "").isalnum() for path in folders for part in path.parts)


def test_the_queries_refuse_another_spark() -> None:
    program = [sys.executable, "-m", "scripts.spark_4_1.trial_queries", "jar", "folder"]
    run = subprocess.run(
        program, cwd=spark_4_1_trial.ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "and must be 4.1" in run.stderr
