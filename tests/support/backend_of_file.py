"""The backend that keeps operator state in the tests of a file that run in Spark.

Every test of an operator that names no backend must hold on each backend. Every test on both
backends would take too long in every run. So each file runs on one backend. A checksum of the
file's name chooses the backend, so the choice is the same everywhere and always. The files of
`ON_BOTH` test the operator's main paths and run on both backends. `TEST_BACKEND=rocksdb` runs all
these files on RocksDB, and no other tests.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

BACKENDS = ("heap", "rocksdb")
ON_BOTH = frozenset({"test_transform_with_state.py", "test_collection_states.py"})
# The tests of these files choose backends themselves.
_CHOOSING = frozenset(
    {
        "test_backends.py",
        "test_killed_databases.py",
        "test_memory_limit.py",
        "test_random_processors.py",
        "test_savepoints.py",
    }
)
# The tests of these files run Spark's operators on the provider.
_WITHOUT_OPERATORS = "test_provider"
_OF_OPERATORS = re.compile(
    r"transform_?with_?state|tests\.support\.applications\.streams", re.IGNORECASE
)
_VARIABLE = "TEST_BACKEND"


def only_backend() -> str | None:
    """The only backend of this test run; None for a run of all tests. Raises ValueError for an
    unknown backend."""
    chosen = os.environ.get(_VARIABLE)
    if chosen is not None and chosen not in BACKENDS:
        raise ValueError(f"{_VARIABLE} is {chosen!r}; allowed are {', '.join(BACKENDS)}")
    return chosen


def backends_of(file: Path, only: str | None) -> tuple[str, ...]:
    """The backends for the operators of a test file. Empty if the file chooses backends itself, or
    has no operators."""
    has_none = file.name.startswith(_WITHOUT_OPERATORS)
    if has_none or file.name in _CHOOSING or not _OF_OPERATORS.search(file.read_text()):
        return ()
    if only is not None:
        return (only,)
    if file.name in ON_BOTH:
        return BACKENDS
    return (BACKENDS[zlib.crc32(file.name.encode()) % len(BACKENDS)],)
