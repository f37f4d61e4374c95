"""Which PySpark the Python processes of tests import: see `interpreter/sitecustomize.py`."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = str(Path(__file__).parent / "interpreter")


def import_installed_pyspark() -> None:
    """For the processes that this process and its children start from now on."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if FOLDER not in entries:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDER, *entries]))
