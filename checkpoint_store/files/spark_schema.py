"""Parser of Spark's JSON schemas, and the Arrow type of each Spark type. Pure.

    Spark                                      Arrow
    boolean, byte, short, integer, long        bool, int8, int16, int32, int64
    float, double                              float32, float64
    decimal(p,s)                               decimal128(p, s)
    string (any collation), char, varchar      string
    binary                                     binary
    date                                       date32
    timestamp, timestamp_ntz                   timestamp[us, UTC], timestamp[us]
    time(p)                                    time64[ns]
    interval day to second (and its parts)     duration[us]
    interval year to month (and its parts)     month_day_nano_interval
    interval                                   month_day_nano_interval
    void                                       null
    variant                                    struct<value: binary, metadata: binary>
    struct, array, map                         struct, list, map
    a user-defined type                        the Arrow type of its sqlType

Every field is nullable in Arrow, because each row marks its own nulls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from checkpoint_store.errors import CowstateError

MAX_COMPACT_PRECISION = 18

_MAX_PRECISION = 38
_TEXT = re.compile(r"string( collate \S+)?|(var)?char\([0-9]+\)")
_DECIMAL = re.compile(r"decimal\(([0-9]+),\s*(-?[0-9]+)\)")
_TIME = re.compile(r"time\([0-9]+\)")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_YEAR_MONTH = re.compile(r"interval (year|month)( to month)?")


class UnsupportedSparkTypeError(CowstateError, ValueError):
    """A column has an unknown type; the message has the column's path and the type."""


@dataclass(frozen=True, slots=True)
class FixedType:
    """Values of `width` bytes. In a row each value takes 8 bytes; in an array values follow each
    other."""

    arrow: pa.DataType
    width: int


@dataclass(frozen=True, slots=True)
class VariableType:
    """Values of any length. A row or an array points to the bytes of a value."""

    arrow: pa.DataType


@dataclass(frozen=True, slots=True)
class VariantType:
    """Values of two binaries: the variant's value and its metadata."""

    arrow = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])


@dataclass(frozen=True, slots=True)
class VoidType:
    """Values that are always null."""

    arrow = pa.null()


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Arrays with any number of elements."""

    element: SparkType

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.arrow))


@dataclass(frozen=True, slots=True)
class MapType:
    """Maps from keys to values, in the writer's order."""

    key: SparkType
    value: SparkType

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key.arrow, self.value.arrow)


@dataclass(frozen=True, slots=True)
class StructType:
    """A row: the names and types of the fields."""

    fields: tuple[tuple[str, SparkType], ...]

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(name, field_type.arrow) for name, field_type in self.fields])

    @property
    def layout(self) -> tuple[SparkType, ...]:
        """The types of the fields. The names of fields are left out at every depth, because the
        bytes of a row depend only on the types."""
        return tuple(_nameless(field_type) for _, field_type in self.fields)


SparkType = FixedType | VariableType | VariantType | VoidType | ArrayType | MapType | StructType

_ATOMIC: dict[str, SparkType] = {
    "boolean": FixedType(pa.bool_(), 1),
    "byte": FixedType(pa.int8(), 1),
    "short": FixedType(pa.int16(), 2),
    "integer": FixedType(pa.int32(), 4),
    "long": FixedType(pa.int64(), 8),
    "float": FixedType(pa.float32(), 4),
    "double": FixedType(pa.float64(), 8),
    "date": FixedType(pa.date32(), 4),
    "timestamp": FixedType(pa.timestamp("us", "UTC"), 8),
    "timestamp_ntz": FixedType(pa.timestamp("us"), 8),
    "binary": VariableType(pa.binary()),
    "interval": VariableType(pa.month_day_nano_interval()),
    "variant": VariantType(),
    "void": VoidType(),
    "null": VoidType(),
}


def parse_spark_schema(schema_json: str) -> StructType:
    """Parse a schema that `StructType.json` wrote.

    Raises UnsupportedSparkTypeError, and ValueError, KeyError or TypeError for text without a
    schema.
    """
    schema = _parse(json.loads(schema_json), "")
    if not isinstance(schema, StructType):
        raise ValueError("a schema that is no struct")
    return schema


def _parse(described: Any, path: str) -> SparkType:
    if isinstance(described, str):
        return _atomic(described, path)
    kind = described["type"]
    if kind == "struct":
        fields = described["fields"]
        return StructType(
            tuple((f["name"], _parse(f["type"], _below(path, f["name"]))) for f in fields)
        )
    if kind == "array":
        return ArrayType(_parse(described["elementType"], _below(path, "element")))
    if kind == "map":
        key = _parse(described["keyType"], _below(path, "key"))
        return MapType(key, _parse(described["valueType"], _below(path, "value")))
    if kind == "udt":
        return _parse(described["sqlType"], path)
    raise _unsupported(str(kind), path)


def _atomic(name: str, path: str) -> SparkType:
    if name in _ATOMIC:
        return _ATOMIC[name]
    if _TEXT.fullmatch(name):
        return VariableType(pa.string())
    if _TIME.fullmatch(name):
        return FixedType(pa.time64("ns"), 8)
    if _DAY_TIME.fullmatch(name):
        return FixedType(pa.duration("us"), 8)
    if _YEAR_MONTH.fullmatch(name):
        return FixedType(pa.month_day_nano_interval(), 4)
    decimal = _DECIMAL.fullmatch(name)
    if decimal and 1 <= int(decimal[1]) <= _MAX_PRECISION:
        arrow = pa.decimal128(int(decimal[1]), int(decimal[2]))
        compact = arrow.precision <= MAX_COMPACT_PRECISION
        return FixedType(arrow, 8) if compact else VariableType(arrow)
    raise _unsupported(name, path)


def _nameless(spark_type: SparkType) -> SparkType:
    match spark_type:
        case StructType():
            return StructType(tuple(("", nested) for nested in spark_type.layout))
        case ArrayType():
            return ArrayType(_nameless(spark_type.element))
        case MapType():
            return MapType(_nameless(spark_type.key), _nameless(spark_type.value))
        case _:
            return spark_type


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unsupported(name: str, path: str) -> UnsupportedSparkTypeError:
    return UnsupportedSparkTypeError(f"column {path} has type {name}")
