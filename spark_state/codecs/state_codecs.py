"""Codecs for values in state. `spark_state.serializers` has the table of the Python forms.

A put converts a value to the type of its column, as in Spark: a `datetime` at midnight to a date,
text to UTF-8 bytes, a whole number to the text of its digits; a decimal is rounded half up. Some of
Spark's conversions lose information: a whole number in a double column becomes null, a number too
large for an int column wraps around. Here such a value is kept exactly, or refused.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import (
    Codec,
    Convert,
    Forms,
    MakeRow,
    Pairs,
    ScalarCodecs,
    make_tuple,
    values_by_position,
)
from spark_state.codecs.numpy_values import is_missing, python_value


def _from(own: type, convert: Convert, nan: Any = None) -> Convert:
    """Return `convert`, extended to convert scalars of NumPy and pandas to Python values first.
    Values of the type `own` need no such conversion. `nan`: the result for NaN."""

    def convert_any(value: Any) -> Any:
        if type(value) is not own:
            if is_missing(value) or (value := python_value(value)) is None:
                return None
            if _is_nan(value):
                return nan
        return convert(value)

    return convert_any


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def _is_null(value: Any) -> bool:
    return is_missing(value) or _is_nan(value)


def bool_of(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer_codec(bits: int) -> Codec:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"out of range [{low}, {high}]")
        return number

    return Codec(_from(int, convert), exact=int if bits == 64 else None)


def exact_float(value: Any, rounded: float) -> float:
    """Return `rounded`, the float of `value`, if rounding did not change a whole number. Raises
    TypeError for a value that is no number, ValueError for a changed whole number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    if isinstance(value, Integral) and int(value) != rounded:
        raise ValueError("a whole number that this type does not hold exactly")
    return rounded


def _double(value: Any) -> float:
    return exact_float(value, float(value) if isinstance(value, Real) else 0.0)


def float_of_32_bits(value: float) -> float:
    """Return the nearest float of 32 bits. Raises OverflowError instead of returning infinity."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def _float(value: Any) -> float:
    return exact_float(value, float_of_32_bits(_double(value)))


def _string(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal) and value.is_finite():
        return str(value if value else value.copy_abs())
    # Java 17 and Java 21 write the same float differently.
    raise TypeError


def bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def _decimal_codec(value_type: Any) -> Codec:
    quantum = Decimal(1).scaleb(-value_type.scale)
    limit = Decimal(10) ** (value_type.precision - value_type.scale)

    def convert(value: Any) -> Decimal | None:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError
        with localcontext(prec=value_type.precision + 2, rounding=ROUND_HALF_UP):
            try:
                result = Decimal(value).quantize(quantum)
            except InvalidOperation:
                result = limit
        if result.is_nan():
            return None
        # Not abs: abs rounds to the digits of the context.
        if result.copy_abs() >= limit:
            raise ValueError(f"out of range of {value_type}")
        return result

    return Codec(_from(Decimal, convert))


def date_of(value: Any) -> datetime.date:
    """Return a date. A `datetime` is accepted if there is neither a time of day nor a time zone."""
    if not isinstance(value, datetime.date):
        raise TypeError
    if not isinstance(value, datetime.datetime):
        return value
    if value.tzinfo is not None or value.time() != datetime.time.min:
        raise ValueError("its time of day or its time zone would be lost; call .date()")
    return value.date()


def naive_of(value: Any) -> datetime.datetime:
    """Return a `datetime` without a time zone. Raises ValueError for a time zone."""
    if not isinstance(value, datetime.datetime):
        raise TypeError
    if value.tzinfo is not None:
        raise ValueError("its time zone would be lost; call .replace(tzinfo=None)")
    return value.replace(fold=0)


def _local(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise TypeError
    try:
        local = value.astimezone().replace(tzinfo=None)
        if local.year in (datetime.MINYEAR, datetime.MAXYEAR):
            _local_to_utc(local)
    except (OverflowError, ValueError) as error:
        edge = "Python cannot convert it to UTC: it is at the edge of years 1 to 9999"
        raise ValueError(edge) from error
    return local


def _local_to_utc(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC)


def _duration(value: Any) -> datetime.timedelta:
    if not isinstance(value, datetime.timedelta):
        raise TypeError
    return value


_CODECS: list[tuple[Callable[[Any], bool], Codec]] = [
    (pa.types.is_boolean, Codec(_from(bool, bool_of), exact=bool)),
    (pa.types.is_float64, Codec(_from(float, _double, nan=float("nan")), exact=float)),
    (pa.types.is_float32, Codec(_from(float, _float, nan=float("nan")))),
    (pa.types.is_string, Codec(_from(str, _string, nan="NaN"), exact=str)),
    (pa.types.is_large_string, Codec(_from(str, _string, nan="NaN"), exact=str)),
    (pa.types.is_binary, Codec(_from(bytes, bytes_of), exact=bytes)),
    (pa.types.is_large_binary, Codec(_from(bytes, bytes_of), exact=bytes)),
    (pa.types.is_date32, Codec(_from(datetime.date, date_of), exact=datetime.date)),
    (pa.types.is_duration, Codec(_from(datetime.timedelta, _duration), exact=datetime.timedelta)),
]
_NAIVE = Codec(_from(datetime.datetime, naive_of))
_LOCAL = Codec(
    _from(datetime.datetime, _local),
    to_arrow=_local_to_utc,
    from_arrow=_local,
)


_SCALARS = ScalarCodecs(_integer_codec, _decimal_codec, _NAIVE, _LOCAL, _CODECS)


def _make_dict(pairs: Pairs) -> dict[Any, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key is there twice")
    return entries


def state_forms(make_row: MakeRow) -> Forms:
    """Return the forms of values in state."""
    return Forms(make_row, _SCALARS, _make_dict, values_by_position, _is_null)


PLAIN_FORMS = state_forms(make_tuple)
