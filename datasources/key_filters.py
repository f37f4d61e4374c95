"""Which key groups and files rows can be in, from what filters say of the key columns. Pure.

Equality on all key columns leaves the key groups of the keys asked for. Equality and ranges on any
of them leave the files whose bounds meet them, see checkpoint_store.files.key_bounds.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from checkpoint_store.files.key_bounds import ValueRange, bound_of
from spark_state.errors import KeyGroupError
from spark_state.key_group_assignment import KeyGroupAssignment

KeyValues = tuple[Any, ...]

_MOST_KEYS = 1_000


@dataclass
class AskedValues:
    """What filters, all of which hold, say of columns at the top level: values, and ranges."""

    values: dict[str, KeyValues] = field(default_factory=dict)
    ranges: dict[str, ValueRange] = field(default_factory=dict)

    def add(self, condition: Filter) -> None:
        """Remember one filter, as far as it says something of that kind."""
        values = _values_of(condition)
        name = _column_of(condition)
        if name is None:
            return
        if values is not None:
            asked_before = self.values.get(name, values)
            self.values[name] = tuple(value for value in asked_before if value in values)
        known_range = self.ranges.get(name, ValueRange())
        try:
            self.ranges[name] = known_range.intersection(_range_of(condition, values))
        except TypeError:
            # Values of several types: it is Spark's to compare them.
            self.ranges[name] = ValueRange()


def _column_of(condition: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _values_of(condition: Filter) -> KeyValues | None:
    """The values that a filter leaves, None if it says no such."""
    match condition:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return (value,)
        case In(_, values):
            return tuple(values)
    return None


def _range_of(condition: Filter, values: KeyValues | None) -> ValueRange:
    """The values that a filter leaves, and maybe more; the ends are taken as inclusive.

    Raises TypeError for values of several types.
    """
    match condition:
        case GreaterThan(_, value) | GreaterThanOrEqual(_, value):
            return ValueRange(least=bound_of(value))
        case LessThan(_, value) | LessThanOrEqual(_, value):
            return ValueRange(greatest=bound_of(value))
    bounds: list[Any] = [bound_of(value) for value in values or ()]
    if not bounds or None in bounds:
        return ValueRange()
    return ValueRange(min(bounds), max(bounds))


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
