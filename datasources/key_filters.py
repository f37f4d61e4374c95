"""Which key groups rows can be in, from what filters say of the key columns. Pure."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import KeyGroupAssignment

KeyValues = tuple[Any, ...]

_MOST_KEYS = 1_000


def key_groups_asked_for(
    values: Mapping[str, KeyValues], key_schema_json: str, max_parallelism: int
) -> list[int] | None:
    """The key groups of all keys whose columns have one of the values given for them; None if not
    every key column is given, or there are too many keys. `values` is by the column's name."""
    fields = json.loads(key_schema_json)["fields"]
    if not fields or any(field["name"] not in values for field in fields):
        return None
    if any(field["type"] == "timestamp" for field in fields):
        return None  # what a filter's datetime without zone means is known to Spark's session only
    columns = [values[field["name"]] for field in fields]
    if math.prod(map(len, columns)) > _MOST_KEYS:
        return None
    try:
        assignment = KeyGroupAssignment([field["type"] for field in fields], max_parallelism)
        return sorted({assignment.key_group(key) for key in itertools.product(*columns)})
    except KeyGroupError:
        # A value of another type than the column: it is Spark's to compare them.
        return None
