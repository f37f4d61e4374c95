"""Finds the key groups and files that a query with filters must read. Pure.

If filters fix every key column, only the key groups of these keys are read. If filters fix or bound
some key column, only files with such keys are read, see checkpoint_store.files.key_bounds.
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
    """The values and ranges that filters allow for top-level columns. All filters must hold."""

    values: dict[str, KeyValues] = field(default_factory=dict)
    ranges: dict[str, ValueRange] = field(default_factory=dict)

    def add(self, condition: Filter) -> None:
        """Remember a filter, if it allows only some values or a range."""
        values = _values_of(condition)
        name = _column_of(condition)
        if name is None:
            return
        if values is not None:
            asked_before = self.values.get(name, values)
            self.values[name] = tuple(value for value in asked_before if value in values)
        range_before = self.ranges.get(name, ValueRange())
        try:
            self.ranges[name] = range_before.intersection(_range_of(condition, values))
        except TypeError:
            # The values have several types. Only Spark knows how to compare these.
            self.ranges[name] = ValueRange()


def _column_of(condition: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _values_of(condition: Filter) -> KeyValues | None:
    """The only values that a filter allows; None if the filter is of another kind."""
    match condition:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return (value,)
        case In(_, values):
            return tuple(values)
    return None


def _range_of(condition: Filter, values: KeyValues | None) -> ValueRange:
    """A range with all values that a filter allows, and maybe more: both ends are inclusive.

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
    """The key groups of all keys that can be made of these values, which are by column name.

    None if a key column has no values, or there are too many keys.
    """
    fields = json.loads(key_schema_json)["fields"]
    if not fields or any(field["name"] not in values for field in fields):
        return None
    if '"timestamp"' in json.dumps([field["type"] for field in fields]):
        return None  # only Spark's session knows the zone of a filter's datetime
    columns = [values[field["name"]] for field in fields]
    if math.prod(map(len, columns)) > _MOST_KEYS:
        return None
    try:
        assignment = KeyGroupAssignment([field["type"] for field in fields], max_parallelism)
        return sorted({assignment.key_group(key) for key in itertools.product(*columns)})
    except KeyGroupError:
        # A value has another type than its column. Only Spark knows how to compare these.
        return None
