"""Random values of Python, NumPy and pandas types, and a check that a conversion kept a value.

`kept` is the oracle of tests that compare cowstate's conversions with Spark's. If Spark keeps a
value, cowstate must give the same value. If Spark loses a value, cowstate must refuse or keep the
value.
"""

from __future__ import annotations

import array
import datetime
import math
import random
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Row

TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary",
    "decimal(10,2)", "decimal(38,18)", "date", "timestamp", "timestamp_ntz",
    "array<bigint>", "array<string>", "map<string,bigint>", "struct<lat:double,lon:double>",
    "array<struct<lat:double,lon:double>>", "map<string,struct<lat:double,lon:double>>",
)  # fmt: skip
DECIMALS = {"decimal(10,2)": (10, 2), "decimal(38,18)": (38, 18)}
Maker = Callable[[random.Random], Any]


def _integer(rng: random.Random) -> int:
    bits = rng.choice((1, 7, 8, 15, 16, 31, 32, 53, 54, 63, 64, 100))
    return rng.choice((1, -1)) * rng.choice((2**bits, 2**bits - 1, rng.randrange(2**bits)))


def _float(rng: random.Random) -> float:
    whole = float(rng.randrange(-300, 300))
    return rng.choice((whole, rng.uniform(-1, 1), 1e300, math.nan, math.inf, -0.0, 2.0**53))


def _decimal(rng: random.Random) -> Decimal:
    digits = Decimal(rng.randrange(-(10**12), 10**12))
    special = (Decimal("NaN"), Decimal("Infinity"), Decimal("1E+3"), Decimal("1.005"))
    return rng.choice((digits.scaleb(-rng.randrange(6)), digits, *special))


def _text(rng: random.Random) -> str:
    return rng.choice(("", "a", "ab", "12", "true", "ü", "\U0001f600"))


def _bytes(rng: random.Random) -> bytes:
    return rng.choice((b"", b"ab", b"\xff", "ü".encode()))


def _date(rng: random.Random) -> datetime.date:
    return datetime.date.fromordinal(rng.randrange(693_596, 767_000))


def _datetime(rng: random.Random) -> datetime.datetime:
    midnight = datetime.datetime.combine(_date(rng), datetime.time())
    micros = rng.choice((0, 0, rng.randrange(86_400_000_000)))
    zone = rng.choice(
        (
            None,
            None,
            datetime.UTC,
            datetime.timezone(datetime.timedelta(hours=rng.randrange(-9, 9))),
        )
    )
    return (midnight + datetime.timedelta(microseconds=micros)).replace(tzinfo=zone)


def _numpy(rng: random.Random) -> Any:
    small = rng.randrange(-128, 128)
    return rng.choice((
        np.int8(small), np.int16(small), np.int32(small), np.int64(2**53 + 1),
        np.uint64(2**64 - 1), np.float32(rng.uniform(-1, 1)), np.float32(small),
        np.float64(_float(rng)), np.bool_(small % 2), np.str_("s"), np.bytes_(b"s"),
        np.datetime64(_date(rng)), np.datetime64(_datetime(rng).replace(tzinfo=None)),
        np.datetime64(small, "ns"), np.datetime64("NaT", "us"), np.timedelta64(small, "us"),
    ))  # fmt: skip


def _pandas(rng: random.Random) -> Any:
    moment = pd.Timestamp(_datetime(rng))
    finer = pd.Timestamp(rng.randrange(10**18), unit="ns")
    return rng.choice((moment, finer, moment.normalize(), pd.NaT, pd.NA, pd.Timedelta(5, "us")))


def _place(rng: random.Random) -> Any:
    lat, lon = rng.uniform(-90, 90), rng.uniform(-180, 180)
    return rng.choice((
        Row(lat=lat, lon=lon), Row(lon=lon, lat=lat), Row(lat=lat), (lat, lon), [lat, lon],
        {"lat": lat, "lon": lon}, {"lon": lon}, {"lat": lat, "lon": lon, "height": 1.0},
    ))  # fmt: skip


def _list(rng: random.Random) -> Any:
    items = [rng.choice((_integer, _float, _text))(rng)] * rng.randrange(3)
    numbers = [rng.randrange(100) for _ in range(rng.randrange(3))]
    return rng.choice((
        items, tuple(items), numbers, [*numbers, None], np.array(numbers, np.int64),
        array.array("q", numbers), [_place(rng), None],
    ))  # fmt: skip


def _map(rng: random.Random) -> Any:
    entries = {_text(rng): rng.choice((rng.randrange(9), None)) for _ in range(rng.randrange(3))}
    return rng.choice((entries, list(entries.items()), {"x": _place(rng)}, {"x": _float(rng)}))


MAKERS: dict[str, Sequence[Maker]] = {
    "number": (_integer, _float, _decimal, lambda rng: rng.random() < 0.5),
    "text": (_text, _bytes, lambda rng: bytearray(_bytes(rng))),
    "time": (_date, _datetime, lambda rng: datetime.timedelta(_integer(rng) % 100_000)),
    "nested": (_place, _list, _map),
    "library": (_numpy, _pandas),
}
_KINDS = {"string": "text", "binary": "text", "date": "time", "timestamp": "time"}
_KINDS |= {"timestamp_ntz": "time"} | {each: "nested" for each in TYPES if "<" in each}


def random_value(rng: random.Random, field_type: str) -> Any:
    """A random value: mostly of a kind that fits the type, sometimes of any other kind."""
    kind = rng.choice((_KINDS.get(field_type, "number"),) * 3 + ("library", *MAKERS))
    return rng.choice(MAKERS[kind])(rng)


def kept(value: Any, got: Any, field_type: str, by_name: bool) -> bool:
    """True if `got`, a Python value of a column, is `value`. A loss counts only if the column's
    type can hold the lost part: decimals of a decimal and bits of a float may be lost. `by_name`: a
    Row becomes a struct by field names, as in output; otherwise by position, as in state."""
    if _is_null(value):
        return got is None
    if got is None:
        return _is_nan(value) and field_type not in ("float", "double")
    if field_type.startswith(("array<", "map<", "struct<")):
        return _kept_nested(value, got, field_type, by_name)
    if isinstance(value, datetime.date | np.datetime64):
        return _kept_time(value, got, field_type)
    if isinstance(value, str | bytes | bytearray | np.str_ | np.bytes_):
        return field_type in ("string", "binary") and _bytes_of(value) == _bytes_of(got)
    value = value.item() if isinstance(value, np.generic) else value
    return isinstance(value, int | float | Decimal) and _kept_number(value, got, field_type)


def _is_null(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, np.datetime64) and np.isnat(value))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating | Decimal) and math.isnan(value)


def _bytes_of(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _kept_number(value: Any, got: Any, field_type: str) -> bool:
    if field_type == "string" and _is_nan(value):
        return bool(got == "NaN")
    if field_type == "string":
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return not isinstance(value, float) and got == text
    if field_type in DECIMALS and isinstance(value, Decimal):
        with localcontext(prec=60, rounding=ROUND_HALF_UP):
            return bool(got == value.quantize(Decimal(1).scaleb(-DECIMALS[field_type][1])))
    if field_type == "float" and isinstance(value, float) and not math.isnan(value):
        with np.errstate(over="ignore"):
            return bool(np.float32(value) == got) and math.isinf(value) == math.isinf(got)
    if isinstance(got, datetime.date):
        return math.isfinite(value) and int(value) == value
    return _is_nan(value) and math.isnan(got) if _is_nan(value) else bool(got == value)


def _kept_time(value: Any, got: Any, field_type: str) -> bool:
    if isinstance(value, np.datetime64):
        if value != value.astype("M8[us]"):
            return False
        value = value.astype("M8[us]").item()
    if value is pd.NaT:
        return False
    if isinstance(value, pd.Timestamp):
        if value.nanosecond:
            return False
        value = value.to_pydatetime()
    if not isinstance(value, datetime.datetime):
        return field_type == "date" and bool(got == value)
    if field_type == "timestamp":
        return isinstance(got, datetime.datetime)
    if value.tzinfo is not None:
        return False
    if field_type == "date":
        return value.time() == datetime.time() and bool(got == value.date())
    return field_type == "timestamp_ntz" and bool(got == value)


def _kept_nested(value: Any, got: Any, field_type: str, by_name: bool) -> bool:
    inside = field_type[field_type.index("<") + 1 : -1]
    if field_type.startswith("array<"):
        if isinstance(value, str | bytes | bytearray | dict) or not hasattr(value, "__iter__"):
            return False
        return len(value) == len(got) and all(
            kept(each, other, inside, by_name) for each, other in zip(value, got, strict=True)
        )
    if field_type.startswith("map<"):
        item = inside.partition(",")[2]
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(value, dict | list | tuple) or len(pairs) != len(got):
            return False
        return all(isinstance(p, tuple) and kept(p[1], got.get(p[0]), item, by_name) for p in pairs)
    return _kept_struct(value, got, by_name)


def _kept_struct(value: Any, got: Any, by_name: bool) -> bool:
    if not isinstance(value, tuple | list | dict):
        return False
    if isinstance(value, Row) and by_name:
        value = value.asDict()
    values = [value.get(name) for name in ("lat", "lon")] if isinstance(value, dict) else value
    return len(values) == len(got) and all(
        kept(each, other, "double", by_name) for each, other in zip(values, got, strict=True)
    )
