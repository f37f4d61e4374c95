"""Startup hook of all Python processes of the tests: Python runs this file because of PYTHONPATH.

Spark starts Python workers with PySpark in a zip file. The zip file holds only sources, so each
process compiles its imports. The interpreter of the tests has PySpark installed. Without the zip
files in sys.path, workers import the installed modules, which are compiled once.
"""

import sys
from pathlib import Path

ZIPS = ("pyspark.zip", "-src.zip")


def installed_beside(zip_file: Path) -> bool:
    """True for a `pyspark/python/lib/*.zip` inside a folder of sys.path."""
    return zip_file.parts[-4:-1] == ("pyspark", "python", "lib") and (
        str(zip_file.parents[3]) in sys.path
    )


sys.path[:] = [
    entry for entry in sys.path if not (entry.endswith(ZIPS) and installed_beside(Path(entry)))
]
