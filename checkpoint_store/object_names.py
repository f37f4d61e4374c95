"""First parts of object names: the documents and directories of a store. Pure.

`operator_layout` and `table_layout` build and parse whole names.
"""

from __future__ import annotations

STORE = "store.json"
RUNS = "runs"
BEGUN = "begun"
MANIFESTS = "manifests"
EPOCHS = "epochs"
PINS = "pins"

TABLE = "table.json"
VERSIONS = "versions"
COMPACTIONS = "compactions"
DATA = "data"
COMPACTED = "compacted"

QUERY = "metadata"
COMMITS = "commits"
OFFSETS = "offsets"
STATE = "state"
STATE_PLACE = f"{STATE}/cowstate-store.json"

_NO_PART = ("", ".", "..")
BARRIER_PREFIX = "barrier-"
GROUP_PREFIX = "group-"


def parse_object_name(name: str) -> list[str] | None:
    """Return the parts of a name. Return None for a name that may leave the store: an absolute
    name, or a name with `..`."""
    parts = name.split("/")
    return None if any(part in _NO_PART or "\0" in part for part in parts) else parts


def is_of_table(name: str) -> bool:
    """Return True for a version, a compaction or a file of rows of a table."""
    return name.partition("/")[0] in (VERSIONS, COMPACTIONS, DATA)


def is_of_checkpoint(name: str) -> bool:
    """Return True for an object in the checkpoint of a query on the state store provider."""
    return name.partition("/")[0] in (QUERY, COMMITS, OFFSETS, STATE)


def is_compacted(name: str) -> bool:
    """Return True for a file of rows that a compaction wrote."""
    return name.startswith(f"{DATA}/{COMPACTED}/")


def is_group(name: str) -> bool:
    """Return True for an object with the barriers of a group of subtasks in an operator's epoch."""
    return name.startswith(f"{EPOCHS}/") and name.rpartition("/")[2].startswith(GROUP_PREFIX)


def is_barrier(name: str) -> bool:
    """Return True for a barrier of an operator's epoch."""
    return name.startswith(f"{EPOCHS}/") and name.rpartition("/")[2].startswith(BARRIER_PREFIX)
