"""The README's Python runs from top to bottom in one session, as for a newcomer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

README = Path(__file__).resolve().parents[3] / "README.md"


# On a busy machine 30 s may pass before the first rows come; on an idle machine a few seconds.
AWAIT_ROWS = """
def await_rows(query):
    while query.exception() is None and not any(p["numInputRows"] for p in query.recentProgress):
        query.awaitTermination(1)
"""


def readme_program(folder: Path) -> str:
    """Join the README's Python blocks, with paths below `folder`, waiting until queries have
    rows."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
    program = "\n".join(blocks).replace("/tmp/", f"{folder}/")
    assert program.count("query.awaitTermination(30)") == 3
    return AWAIT_ROWS + program.replace("query.awaitTermination(30)", "await_rows(query)")


@pytest.mark.timeout(1000)
def test_its_snippets_run_one_after_the_other_in_one_session(tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    program.write_text(readme_program(tmp_path), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.count("Batch: 0") == 2, "two queries write to the console"
    assert re.search(r"^\|\s*w\d\|\s*\d+\|$", done.stdout, re.M), done.stdout
    assert (tmp_path / "cowstate-store").is_dir()
