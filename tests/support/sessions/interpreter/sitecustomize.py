"""Python runs this at its start in all processes of the tests, for its folder is in PYTHONPATH.

Spark starts its Python workers with PySpark in a zip file, which holds sources only: each process
compiles what it imports. Where an interpreter has PySpark installed, as the tests' has, it imports
the same modules from there, compiled once.
"""

import sys
from pathlib import Path

ZIPS = ("pyspark.zip", "-src.zip")


def installed_beside(zip_file: Path) -> bool:
    """Whether this is `pyspark/python/lib/*.zip` in a folder that modules are imported from."""
    return zip_file.parts[-4:-1] == ("pyspark", "python", "lib") and (
        str(zip_file.parents[3]) in sys.path
    )


sys.path[:] = [
    entry for entry in sys.path if not (entry.endswith(ZIPS) and installed_beside(Path(entry)))
]
