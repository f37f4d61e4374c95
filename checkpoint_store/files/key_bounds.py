"""Bounds of the keys in a file: the least and the greatest value of each key column. Pure.

Columns of integers, dates and strings have bounds, in a form for JSON: whole numbers, days since
1970, and text. Text is compared by code points; comparing UTF-8 by bytes gives the same order.
Nulls are left out, because no range of values holds nulls.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Bound = int | str
_LONGEST_TEXT = 256
_FIRST_DAY = datetime.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The least and the greatest value of a key column in a file."""

    column: str
    least: Bound
    greatest: Bound


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values from `least` to `greatest`, both inclusive; None means no end on this side."""

    least: Bound | None = None
    greatest: Bound | None = None

    def intersection(self, other: ValueRange) -> ValueRange:
        """Return the values in both ranges. Raises TypeError if one range has numbers and the other
        text."""
        least = [bound for bound in (self.least, other.least) if bound is not None]
        greatest = [bound for bound in (self.greatest, other.greatest) if bound is not None]
        smaller: Any = min
        greater: Any = max
        return ValueRange(greater(least, default=None), smaller(greatest, default=None))


def bound_of(value: object) -> Bound | None:
    """Return a value in the form of a bound; None if the value's type has no bounds."""
    if isinstance(value, datetime.datetime | bool):
        return None
    if isinstance(value, datetime.date):
        return (value - _FIRST_DAY).days
    return value if isinstance(value, int | str) else None


def key_bounds(rows: pa.Table, key_names: Sequence[str]) -> tuple[KeyBounds, ...]:
    """Return the bounds of the key columns whose types have bounds."""
    bounds = []
    for name in key_names:
        column: Any = rows[name]
        if pa.types.is_date32(column.type):
            # Spark has dates that Python cannot represent.
            column = column.cast(pa.int32())
        elif _is_text(column.type):
            # A string of Spark need not be UTF-8.
            column = column.cast(pa.large_binary())
        elif not pa.types.is_integer(column.type):
            continue
        ends = pc.min_max(column).as_py()
        least, greatest = _bound(ends["min"]), _bound(ends["max"])
        if least is not None and greatest is not None:
            bounds.append(KeyBounds(name, least, greatest))
    return tuple(bounds)


def _bound(end: int | bytes | None) -> Bound | None:
    """Return a bound. None for a text that is too long, and for bytes that are not valid UTF-8."""
    if not isinstance(end, bytes):
        return end
    try:
        text = end.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= _LONGEST_TEXT else None


def may_hold(bounds: Iterable[KeyBounds], wanted: Mapping[str, ValueRange]) -> bool:
    """Return True if a file with these bounds may have a key inside all ranges. `wanted`: ranges by
    the column's name."""
    return all(
        of_column.column not in wanted or _meets(of_column, wanted[of_column.column])
        for of_column in bounds
    )


def rows_in(rows: pa.Table, wanted: Mapping[str, ValueRange]) -> pa.Table:
    """Return the rows inside all ranges of `wanted`. A range is ignored if its column has a type
    without bounds, or if the range has another type than the column."""
    for name, values in wanted.items():
        column: Any = rows[name]
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        ends = [(pc.greater_equal, values.least), (pc.less_equal, values.greatest)]
        for compare, end in ends:
            if end is not None and _compares(column.type, end):
                inside = compare(column, end)
                rows, column = rows.filter(inside), column.filter(inside)
    return rows


def _meets(bounds: KeyBounds, wanted: ValueRange) -> bool:
    ends: Any = (bounds.least, bounds.greatest)
    try:
        return (wanted.least is None or wanted.least <= ends[1]) and (
            wanted.greatest is None or ends[0] <= wanted.greatest
        )
    except TypeError:
        # The range has another type than the column: the caller has to compare values.
        return True


def _compares(kind: pa.DataType, end: Bound) -> bool:
    return _is_text(kind) if isinstance(end, str) else pa.types.is_integer(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
