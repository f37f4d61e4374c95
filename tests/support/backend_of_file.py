"""Which backend keeps the state of the operators that the tests of a file run in Spark.

Every test of an operator that does not name a backend must hold on each of them. To run all of them
on both takes too long for every run: so a file runs on one, by a checksum of its name, which is the
same everywhere and for ever, and the files of `ON_BOTH`, which have the operator's main paths, run
on both. `TEST_BACKEND=rocksdb` runs all of them on that backend, and no other tests.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

BACKENDS = ("heap", "rocksdb")
ON_BOTH = frozenset({"test_transform_with_state.py", "test_collection_states.py"})
# They choose backends themselves.
_CHOOSING = frozenset(
    {
        "test_backends.py",
        "test_killed_databases.py",
        "test_memory_limit.py",
        "test_random_processors.py",
        "test_savepoints.py",
    }
)
# They run Spark's operators on the provider.
_WITHOUT_OPERATORS = "test_provider"
_OF_OPERATORS = re.compile(r"transform_?with_?state|tests\.support\.streams", re.IGNORECASE)
_VARIABLE = "TEST_BACKEND"


def only_backend() -> str | None:
    """The backend that this run is about; None if it is about all tests."""
    chosen = os.environ.get(_VARIABLE)
    if chosen is not None and chosen not in BACKENDS:
        raise ValueError(f"{_VARIABLE} is {chosen!r}; allowed are {', '.join(BACKENDS)}")
    return chosen


def backends_of(file: Path, only: str | None) -> tuple[str, ...]:
    """Those that the operators of a test file run on; none if they are chosen in the file, or it
    has no operators."""
    has_none = file.name.startswith(_WITHOUT_OPERATORS)
    if has_none or file.name in _CHOOSING or not _OF_OPERATORS.search(file.read_text()):
        return ()
    if only is not None:
        return (only,)
    if file.name in ON_BOTH:
        return BACKENDS
    return (BACKENDS[zlib.crc32(file.name.encode()) % len(BACKENDS)],)
