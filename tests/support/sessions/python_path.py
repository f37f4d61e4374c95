"""Makes Python processes of tests import the installed PySpark: `interpreter/sitecustomize.py`."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = str(Path(__file__).parent / "interpreter")


def import_installed_pyspark() -> None:
    """Set PYTHONPATH for all processes that the current process and its children start from now
    on."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if FOLDER not in entries:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDER, *entries]))
