"""Codecs for values of output rows. As in Spark's row API, Arrow converts the values, and structs
are matched by name.

Arrow accepts numbers of another type, days and microseconds for times, text for bytes and bytes for
text. Arrow silently cuts off a fraction, a time of day or a time zone; the codecs refuse such a
value. Timestamps with a zone stay aware; a naive timestamp means UTC, as in Spark.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, Inexact, localcontext
from functools import partial
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import (
    Codec,
    Convert,
    Forms,
    ScalarCodecs,
    make_tuple,
    values_by_position,
)
from spark_state.codecs.numpy_values import is_missing, python_value
from spark_state.codecs.state_codecs import (
    bool_of,
    bytes_of,
    date_of,
    exact_float,
    float_of_32_bits,
    naive_of,
)


def _from(own: type, convert: Convert) -> Convert:
    """Return `convert`, extended to convert scalars of NumPy and pandas to Python values first.
    Values of the type `own` need no such conversion."""

    def convert_any(value: Any) -> Any:
        if type(value) is not own and (value := python_value(value)) is None:
            return None
        return convert(value)

    return convert_any


def _whole(value: Any) -> int:
    """Return a number as an int. Raises ValueError for a fraction."""
    if not isinstance(value, int | float | Decimal):
        raise TypeError
    if not math.isfinite(value) or int(value) != value:
        raise ValueError("not a whole number")
    return int(value)


def _integer_codec(bits: int) -> Codec:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        if isinstance(value, bool):  # a NumPy boolean is no bool: accepted, as in Spark
            raise TypeError
        number = value if type(value) is int else _whole(python_value(value))
        if not low <= number <= high:
            raise ValueError(f"out of range [{low}, {high}]")
        return number

    return Codec(convert, exact=int if bits == 64 else None)


def _double(value: Any) -> float:
    if isinstance(value, bool):
        return float(value)
    return exact_float(value, float(value) if isinstance(value, Real) else 0.0)


def _float(value: Any) -> float:
    rounded = float_of_32_bits(_double(value))
    if isinstance(value, Integral) and int(value) != rounded:
        raise ValueError("a whole number that this type does not hold exactly")
    return rounded


def _string(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _decimal_codec(value_type: Any) -> Codec:
    quantum = Decimal(1).scaleb(-value_type.scale)
    limit = Decimal(10) ** (value_type.precision - value_type.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError
        number = Decimal(value)
        if not number.is_finite() or number.copy_abs() >= limit:
            raise ValueError(f"out of range of {value_type}")
        with localcontext(prec=value_type.precision + 2) as context:
            context.traps[Inexact] = True
            try:
                return number.quantize(quantum)
            except Inexact as error:
                raise ValueError(
                    f"more than {value_type.scale} decimals; round it with .quantize"
                ) from error

    return Codec(_from(Decimal, convert))


def _codec(own: type, convert: Convert, is_exact: bool = True) -> Codec:
    return Codec(_from(own, convert), exact=own if is_exact else None)


def _time_codec(
    own: type, value_type: pa.DataType, convert: Convert | None = None, is_exact: bool = True
) -> Codec:
    """Make a codec for dates, timestamps or intervals that also accepts a whole number of days or
    microseconds, as Arrow does. `own`: Python type of the values; `convert`: converts values of
    this type, None if they need no conversion; `is_exact`: True if `own` is the codec's exact
    type."""

    def convert_any(value: Any) -> Any:
        if isinstance(value, own):
            return value if convert is None else convert(value)
        return pa.array([_whole(value)], value_type)[0].as_py()

    return _codec(own, convert_any, is_exact)


_CODECS: list[tuple[Callable[[Any], bool], Codec]] = [
    (pa.types.is_boolean, _codec(bool, bool_of)),
    (pa.types.is_float64, _codec(float, _double)),
    (pa.types.is_float32, _codec(float, _float, is_exact=False)),
    (pa.types.is_string, _codec(str, _string)),
    (pa.types.is_large_string, _codec(str, _string)),
    (pa.types.is_binary, _codec(bytes, bytes_of)),
    (pa.types.is_large_binary, _codec(bytes, bytes_of)),
    (pa.types.is_date32, _time_codec(datetime.date, pa.date32(), date_of)),
    (pa.types.is_duration, _time_codec(datetime.timedelta, pa.duration("us"))),
]
_AWARE = _time_codec(datetime.datetime, pa.timestamp("us", "UTC"))
_NAIVE = _time_codec(datetime.datetime, pa.timestamp("us"), naive_of, is_exact=False)
_SCALARS = ScalarCodecs(_integer_codec, _decimal_codec, _NAIVE, _AWARE, _CODECS)


def _values_by_name(value: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """Return the values of a struct. A Row with field names or a dict: by name; a missing name
    gives null. A tuple or a list: by position."""
    fields = getattr(value, "__fields__", None)
    if fields is not None and list(fields) != list(names):
        value = dict(zip(fields, value, strict=True))
    return values_by_position(value, names)


OUTPUT_FORMS = Forms(make_tuple, _SCALARS, partial(list[Any]), _values_by_name, is_missing)
