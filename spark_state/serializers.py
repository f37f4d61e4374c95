"""Between the Python values that a processor handles and the Arrow columns that a store keeps.

A value has one Python form, whether it was just put or was restored from a store, and it is the
form that Spark's own ValueState hands out:

    Arrow                      Python
    bool, int8…int64           bool, int
    float32, float64           float (rounded to float32 for float32)
    string, binary             str, bytes
    decimal128(p, s)           decimal.Decimal with exactly s decimals
    date32                     datetime.date
    timestamp[us, tz]          datetime.datetime, naive, in the local time zone of the process
    timestamp[us]              datetime.datetime, naive
    list, map                  list, dict
    struct                     a row, made by `make_row`
    duration[us]               datetime.timedelta
    null                       None

What pandas and NumPy have for these becomes Python's. Rows of output differ in timestamps with a
zone only: they stay aware, and a naive one means UTC, as in Spark's row API (`OUTPUT_FORMS`).

`StructSerializer.to_state` brings a value into this form and refuses what does not fit; it is on
the hot path, so values whose fields already have the right exact types pass after one look-up.
"""

from __future__ import annotations

import copy
import datetime
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from numbers import Integral, Real
from operator import itemgetter
from typing import Any

import pyarrow as pa

from spark_state.errors import StateValueError

Convert = Callable[[Any], Any]
MakeRow = Callable[[tuple[str, ...], tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class _Codec:
    """How values of one Arrow type are checked, written and read.

    `exact`: the Python type whose instances need no conversion, None if every value needs one.
    `to_arrow`, `from_arrow`: None where Arrow's own conversion gives the right form.
    """

    convert: Convert
    exact: type | None = None
    mutable: bool = False
    to_arrow: Convert | None = None
    from_arrow: Convert | None = None


@dataclass(frozen=True, slots=True)
class Forms:
    """Python forms that depend on who handles the values.

    `make_row(names, values)` builds nested structs; `timestamp`: of timestamps with a zone.
    """

    make_row: MakeRow
    timestamp: _Codec


def _unwrap(value: Any) -> Any:
    """A NumPy scalar as its Python value."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _convert_bool(value: Any) -> bool:
    value = _unwrap(value)
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer_codec(bits: int) -> _Codec:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        value = _unwrap(value)
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"out of range [{low}, {high}]")
        return number

    return _Codec(convert, exact=int if bits == 64 else None)


def _convert_double(value: Any) -> float:
    value = _unwrap(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _convert_float(value: Any) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", _convert_double(value)))[0]
    return rounded


def _convert_string(value: Any) -> str:
    value = _unwrap(value)
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _convert_binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def _decimal_codec(value_type: Any) -> _Codec:
    quantum = Decimal(1).scaleb(-value_type.scale)
    limit = Decimal(10) ** (value_type.precision - value_type.scale)

    def convert(value: Any) -> Decimal:
        value = _unwrap(value)
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError
        with localcontext(prec=value_type.precision + 2):
            try:
                result = Decimal(value).quantize(quantum)
            except InvalidOperation:
                result = limit
        if result.is_nan():
            raise ValueError("not a number, which a decimal column cannot hold")
        # Not abs, which rounds to the digits of the context.
        if result.copy_abs() >= limit:
            raise ValueError(f"out of range of {value_type}")
        return result

    return _Codec(convert)


def _convert_date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise TypeError
    return value


def _convert_naive(value: Any) -> datetime.datetime:
    value = _of_pandas(value, "to_pydatetime")
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        raise TypeError
    return value.replace(fold=0)


def _convert_local(value: Any) -> datetime.datetime:
    value = _of_pandas(value, "to_pydatetime")
    if not isinstance(value, datetime.datetime):
        raise TypeError
    local = value.astimezone().replace(tzinfo=None)
    if local.year in (datetime.MINYEAR, datetime.MAXYEAR):
        _local_to_utc(local)  # raises what would be raised when it is written
    return local


def _convert_aware(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise TypeError
    return value


def _convert_duration(value: Any) -> datetime.timedelta:
    value = _of_pandas(_unwrap(value), "to_pytimedelta")
    if not isinstance(value, datetime.timedelta):
        raise TypeError
    return value


def _of_pandas(value: Any, method: str) -> Any:
    """A Timestamp or Timedelta of pandas, which are subclasses of Python's, as Python's."""
    convert = getattr(value, method, None)
    if convert is None:
        return value
    if value != value:
        raise TypeError  # NaT, which is of both classes
    if value.nanosecond if method == "to_pydatetime" else value.nanoseconds:
        raise ValueError("finer than a microsecond")
    return convert()


def _convert_null(_: Any) -> Any:
    raise TypeError


def _local_to_utc(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC)


def _optional(function: Convert | None) -> Convert:
    if function is None:
        return lambda value: value
    return lambda value: None if value is None else function(value)


def _list_codec(value_type: Any, forms: Forms) -> _Codec:
    item = _codec(value_type.value_type, forms)
    convert, to_arrow, from_arrow = map(_optional, (item.convert, item.to_arrow, item.from_arrow))

    def convert_list(value: Any) -> list[Any]:
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
            raise TypeError
        return [convert(v) for v in value]

    return _Codec(
        convert_list,
        mutable=True,
        to_arrow=lambda value: [to_arrow(v) for v in value],
        from_arrow=lambda value: [from_arrow(v) for v in value],
    )


def _map_codec(value_type: Any, forms: Forms) -> _Codec:
    key, item = _codec(value_type.key_type, forms), _codec(value_type.item_type, forms)
    key_to, key_from = _optional(key.to_arrow), _optional(key.from_arrow)
    convert, to_arrow, from_arrow = map(_optional, (item.convert, item.to_arrow, item.from_arrow))

    def convert_map(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError
        return {key.convert(k): convert(v) for k, v in value.items()}

    return _Codec(
        convert_map,
        mutable=True,
        to_arrow=lambda value: [(key_to(k), to_arrow(v)) for k, v in value.items()],
        from_arrow=lambda value: {key_from(k): from_arrow(v) for k, v in value},
    )


def _struct_codec(value_type: pa.StructType, forms: Forms) -> _Codec:
    names = tuple(field.name for field in value_type)
    codecs = [_codec(field.type, forms) for field in value_type]
    convert = [_optional(codec.convert) for codec in codecs]
    to_arrow = [_optional(codec.to_arrow) for codec in codecs]
    from_arrow = [_optional(codec.from_arrow) for codec in codecs]

    def convert_struct(value: Any) -> Any:
        if isinstance(value, dict):
            value = tuple(value.get(name) for name in names)
        if not isinstance(value, tuple | list):
            raise TypeError
        if len(value) != len(names):
            raise ValueError(f"{len(value)} fields instead of {len(names)}")
        return forms.make_row(names, tuple(f(v) for f, v in zip(convert, value, strict=True)))

    return _Codec(
        convert_struct,
        mutable=any(codec.mutable for codec in codecs),
        to_arrow=lambda value: {n: f(v) for n, f, v in zip(names, to_arrow, value, strict=True)},
        from_arrow=lambda value: forms.make_row(
            names, tuple(f(value[n]) for n, f in zip(names, from_arrow, strict=True))
        ),
    )


def _codec(value_type: Any, forms: Forms) -> _Codec:
    types = pa.types
    if types.is_boolean(value_type):
        return _Codec(_convert_bool, exact=bool)
    if types.is_integer(value_type):
        return _integer_codec(value_type.bit_width)
    if types.is_float64(value_type):
        return _Codec(_convert_double, exact=float)
    if types.is_float32(value_type):
        return _Codec(_convert_float)
    if types.is_string(value_type) or types.is_large_string(value_type):
        return _Codec(_convert_string, exact=str)
    if types.is_binary(value_type) or types.is_large_binary(value_type):
        return _Codec(_convert_binary, exact=bytes)
    if types.is_decimal(value_type):
        return _decimal_codec(value_type)
    if types.is_date32(value_type):
        return _Codec(_convert_date, exact=datetime.date)
    if types.is_timestamp(value_type):
        if value_type.tz is None:
            return _Codec(_convert_naive)
        return forms.timestamp
    if types.is_duration(value_type):
        return _Codec(_convert_duration, exact=datetime.timedelta)
    if types.is_null(value_type):
        return _Codec(_convert_null)
    if types.is_list(value_type):
        return _list_codec(value_type, forms)
    if types.is_map(value_type):
        return _map_codec(value_type, forms)
    if types.is_struct(value_type):
        return _struct_codec(value_type, forms)
    raise StateValueError(
        f"values of type {value_type} cannot be kept as state; use a type of "
        "spark_state.serializers' table"
    )


def _tuple_row(_names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values


def state_forms(make_row: MakeRow) -> Forms:
    """The forms of values in state."""
    return Forms(
        make_row, _Codec(_convert_local, to_arrow=_local_to_utc, from_arrow=_convert_local)
    )


PLAIN_FORMS = state_forms(_tuple_row)
OUTPUT_FORMS = Forms(_tuple_row, _Codec(_convert_aware, exact=datetime.datetime))


def _canonical_types(field: Any, codec: _Codec) -> set[type]:
    """The types whose instances are values of a field without conversion."""
    types = set() if codec.exact is None else {codec.exact}
    return types | {type(None)} if field.nullable else types


class StructSerializer:
    """Values of one struct type: checked, copied, written to Arrow and read from it.

    `struct_type`: the Arrow struct; `owner`: what the errors call it ("state 'count'");
    `forms`: of nested structs and timestamps (default: as in state, structs as plain tuples).
    """

    def __init__(self, struct_type: pa.StructType, owner: str, forms: Forms = PLAIN_FORMS) -> None:
        self.struct_type = struct_type
        self.owner = owner
        self._fields = tuple(struct_type)
        self._codecs = tuple(_codec(field.type, forms) for field in self._fields)
        self._accepted: set[tuple[type, ...]] = set()
        self._canonical_types = tuple(map(_canonical_types, self._fields, self._codecs))
        self.immutable = not any(codec.mutable for codec in self._codecs)

    def to_state(self, value: Any) -> tuple[Any, ...]:
        """`value` (a sequence, one item a field) as a tuple in the canonical form.

        Raises StateValueError naming the field, the value and the type expected.
        """
        if type(value) is tuple:
            if tuple(map(type, value)) in self._accepted:
                return value
        elif self._is_no_sequence(value):
            raise StateValueError(
                f"{self.owner}: {value!r} is not a tuple of {len(self._fields)} fields "
                f"({self._names()}); a value of one field is written (x,)"
            )
        return self._convert(tuple(value))

    def _is_no_sequence(self, value: Any) -> bool:
        # As in Spark, a text of one character may stand for the tuple of it. A longer text, or one
        # for several fields, is a mistake.
        if type(value) is str:
            return not len(value) == len(self._fields) == 1
        return not hasattr(value, "__iter__")

    def _convert(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != len(self._fields):
            raise StateValueError(
                f"{self.owner}: {values!r} has {len(values)} fields, the schema has "
                f"{len(self._fields)}: {self._names()}"
            )
        converted = tuple(map(self._convert_field, range(len(values)), values))
        if all(
            codec.exact is type(value) for codec, value in zip(self._codecs, values, strict=True)
        ):
            self._accepted.add(tuple(map(type, values)))
        return converted

    def _convert_field(self, index: int, value: Any) -> Any:
        field = self._fields[index]
        if value is None:
            if field.nullable:
                return None
            raise StateValueError(f"{self.owner}: field {field.name!r} must not be null")
        try:
            return self._codecs[index].convert(value)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            reason = f" ({error})" if str(error) else ""
            raise StateValueError(
                f"{self.owner}: field {field.name!r} expects {field.type}, got {value!r} of "
                f"type {type(value).__name__}{reason}"
            ) from error

    def _names(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self._fields)

    def copy(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """A copy that shares nothing mutable with `state`; the same object when nothing is."""
        return state if self.immutable else copy.deepcopy(state)

    def deletes(self, states: Sequence[tuple[Any, ...] | None]) -> list[bool]:
        """Which states are absent."""
        return [state is None for state in states]

    def to_arrow(self, states: Sequence[tuple[Any, ...] | None]) -> pa.StructArray:
        """States (None = null) as one Arrow array. Raises StateValueError naming the field."""
        absent: Any = pa.array([state is None for state in states], pa.bool_())
        blank = (None,) * len(self._fields)
        rows = [blank if state is None else state for state in states]
        # Not by zip, which makes an iterator for each row.
        columns = [list(map(itemgetter(index), rows)) for index in range(len(self._fields))]
        fields = [field.with_nullable(True) for field in self._fields]
        return pa.StructArray.from_arrays(self.arrays(columns), fields=fields, mask=absent)

    def is_canonical(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether `columns`, the values of each field, are in the canonical form already, as far
        as their types alone tell."""
        return len(columns) == len(self._canonical_types) and all(
            types.issuperset(map(type, column))
            for types, column in zip(self._canonical_types, columns, strict=True)
        )

    def arrays(self, columns: Sequence[Sequence[Any]]) -> list[pa.Array[Any]]:
        """The canonical values of each field as Arrow. Raises StateValueError naming the field."""
        return [self._column(index, column) for index, column in enumerate(columns)]

    def _column(self, index: int, values: Sequence[Any]) -> pa.Array[Any]:
        to_arrow = self._codecs[index].to_arrow
        if to_arrow is not None:
            values = [None if value is None else to_arrow(value) for value in values]
        field = self._fields[index]
        try:
            array: pa.Array[Any] = pa.array(values, field.type)
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            bad = next((value for value in values if not _fits(value, field.type)), None)
            raise StateValueError(
                f"{self.owner}: field {field.name!r} expects {field.type}, got {bad!r}: {error}"
            ) from error
        return array

    def from_arrow(self, array: Any) -> list[tuple[Any, ...] | None]:
        """The inverse of `to_arrow`."""
        columns = [self._values(index, column) for index, column in enumerate(array.flatten())]
        rows: list[Any] = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        if array.null_count:
            present = array.is_valid().to_pylist()
            return [row if keep else None for row, keep in zip(rows, present, strict=True)]
        return rows

    def _values(self, index: int, column: pa.Array[Any]) -> list[Any]:
        values: list[Any] = column.to_pylist()
        from_arrow = self._codecs[index].from_arrow
        if from_arrow is None:
            return values
        return [None if value is None else from_arrow(value) for value in values]


def _fits(value: Any, value_type: pa.DataType) -> bool:
    try:
        pa.array([value], value_type)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True
