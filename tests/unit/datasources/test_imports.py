"""A read or a write imports few modules, because Spark starts a Python process for each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

HEAVY = {"fsspec", "numpy", "pandas", "psutil", "pyarrow", "sqlglot", "tenacity", "xxhash"}
WRITE = """
from pyspark.sql.types import LongType, StructField, StructType
from datasources.sink.opened_tables import open_table
from pyspark_cowstate import DefaultSource

rows = StructType([StructField("id", LongType())])
options = {"path": sys.argv[1], "keys": "id", **json.loads(sys.argv[2])}
open_table(DefaultSource(options).streamWriter(rows, False)._plan)
"""


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run `code` in a new process. Return the names of the imported top-level modules."""
    names = "json.dumps(sorted({name.partition('.')[0] for name in sys.modules}))"
    program = f"import json, sys\n{code}\nprint({names})"
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_the_format_is_found_without_any_library_but_spark() -> None:
    of_spark = imported_by("import pyspark.sql.datasource")
    assert imported_by("import pyspark_cowstate") & HEAVY == of_spark & HEAVY


@pytest.mark.parametrize("options", [{}, {"deleteWhen": "id > 3"}], ids=["without", "with"])
def test_imports_are_those_that_the_options_need(tmp_path: Path, options: dict[str, str]) -> None:
    imported = imported_by(WRITE, str(tmp_path / "table"), json.dumps(options))
    assert (tmp_path / "table" / "table.json").exists()
    assert {"numpy", "pyarrow"} <= imported
    assert ("sqlglot" in imported) == bool(options)
    assert "fsspec" not in imported


def test_another_url_needs_fsspec() -> None:
    opening = "from checkpoint_store.objects.object_store import open_object_store\n"
    assert "fsspec" in imported_by(f"{opening}open_object_store('memory://store')")
