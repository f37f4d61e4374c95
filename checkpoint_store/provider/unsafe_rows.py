"""Spark's UnsafeRow bytes, decoded to Arrow arrays. Pure.

    row    | null bits, 8 bytes per 64 fields | 8 bytes per field | variable part |
    array  | number of elements, 8 bytes | null bits | elements, padded to 8 bytes | variable part |
    map    | bytes of the array of keys, 8 bytes | array of keys | array of values |

Everything is little-endian. A value of fixed width takes the first bytes of its field's 8 bytes; in
an array an element takes only its own width. Any other value is in the variable part. The field or
element of such a value is a long, offset << 32 | size, in bytes. The offset counts from the
beginning of the row or array that contains the field or element.

Rows are decoded column by column: positions are arrays, and values are taken from views of the
buffer, so Arrow does the work. Python loops remain for strings, binaries and decimals of more than
18 digits. Every offset and size is checked before bytes are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import CowstateError
from checkpoint_store.files.spark_schema import (
    ArrayType,
    FixedType,
    MapType,
    SparkType,
    StructType,
    VariableType,
    VariantType,
    VoidType,
)

WORD_BYTES = 8

_BITS = 64
_LOW_HALF = (1 << 32) - 1
_MAX_DECIMAL_BYTES = 16
_NANOS_OF_DAY = 86_400 * 10**9
_MICROS_LIMIT = (1 << 63) // 1000
_INTEGERS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3}

# An Array of int64 or of booleans.
_Array = Any


class MalformedRowError(CowstateError, ValueError):
    """The bytes of a row do not fit the schema. The message names the column."""


def decode_rows(rows: pa.BinaryArray, schema: StructType, name: str) -> pa.StructArray:
    """Decode each row to a struct, null where `rows` is null. `name`: the name of `rows` in errors.
    Raises MalformedRowError."""
    if len(rows) == 0:
        return cast(pa.StructArray, pa.array([], schema.arrow))
    _, offsets, data = rows.buffers()
    stored: _Array = pa.Array.from_buffers(pa.int32(), rows.offset + len(rows) + 1, [None, offsets])
    ends = stored.slice(rows.offset).cast(pa.int64())
    none = pa.scalar(None, pa.int64())
    starts = pc.if_else(rows.is_valid(), ends[:-1], none)
    sizes = pc.subtract(ends[1:], starts)
    bits = pc.bit_wise_or(starts, sizes)
    _require(pc.equal(pc.bit_wise_and(bits, 7), 0), name, "a row of no whole number of words")
    return cast(pa.StructArray, _Decoder(data).struct(_Spans(starts, sizes), schema, name))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Byte ranges of the buffer; null for a null value."""

    starts: _Array
    sizes: _Array


@dataclass(frozen=True, slots=True)
class _Slots:
    """Positions of values in the buffer, in bytes; null for null values. `owners`: for each value,
    the row or array that contains the value. A value of variable length lies at least `least` bytes
    after the beginning of its owner."""

    positions: _Array
    owners: _Spans
    least: _Array | int


class _Decoder:
    """Decoder of one buffer."""

    def __init__(self, data: pa.Buffer | None) -> None:
        self._data = pa.py_buffer(b"") if data is None else data
        self._bytes = self._data.size
        self._views = {
            width: pa.Array.from_buffers(arrow_type, self._bytes // width, [None, self._data])
            for width, arrow_type in _INTEGERS.items()
        }
        self._content = self._data.to_pybytes()

    def struct(self, spans: _Spans, schema: StructType, path: str) -> Any:
        fields = len(schema.fields)
        bit_bytes = (fields + _BITS - 1) // _BITS * WORD_BYTES
        fixed_bytes = bit_bytes + fields * WORD_BYTES
        self._check_words(spans, path)
        _require(pc.greater_equal(spans.sizes, fixed_bytes), path, "a row that is too short")
        children = []
        for place, (name, field_type) in enumerate(schema.fields):
            if place % _BITS == 0:
                bits = self._words(pc.add(spans.starts, place // _BITS * WORD_BYTES))
            slots = pc.add(spans.starts, bit_bytes + place * WORD_BYTES)
            present = _present(bits, place % _BITS, slots)
            children.append(
                self.values(field_type, _Slots(present, spans, fixed_bytes), f"{path}.{name}")
            )
        return _assembled(schema.arrow, spans.starts, [], children)

    def values(self, spark_type: SparkType, slots: _Slots, path: str) -> Any:
        match spark_type:
            case FixedType():
                return _typed(
                    self._integers(slots.positions, spark_type.width), spark_type.arrow, path
                )
            case VoidType():
                return pa.nulls(len(slots.positions))
            case VariableType():
                return self._variable(spark_type.arrow, self._spans(slots, path), path)
            case VariantType():
                return self._variants(spark_type, self._spans(slots, path), path)
            case StructType():
                return self.struct(self._spans(slots, path), spark_type, path)
            case ArrayType():
                spans = self._spans(slots, path)
                ends, elements = self._elements(spark_type.element, spans, f"{path}.element")
                return _assembled(spark_type.arrow, spans.starts, [ends], [elements])
            case MapType():
                return self._maps(spark_type, self._spans(slots, path), path)

    def _integers(self, positions: _Array, width: int) -> Any:
        return self._views[width].take(pc.shift_right(positions, _SHIFTS[width]))

    def _words(self, positions: _Array) -> _Array:
        return self._integers(positions, WORD_BYTES)

    def _spans(self, slots: _Slots, path: str) -> _Spans:
        """The byte ranges to which the values in `slots` point."""
        words = self._words(slots.positions)
        offsets = pc.shift_right(words, 32)
        sizes = pc.bit_wise_and(words, _LOW_HALF)
        ends = pc.add(offsets, sizes)
        inside = pc.and_(
            pc.greater_equal(offsets, slots.least), pc.less_equal(ends, slots.owners.sizes)
        )
        _require(inside, path, "an offset or a size that leads out of the row")
        return _Spans(pc.add(slots.owners.starts, offsets), sizes)

    def _check_words(self, spans: _Spans, path: str) -> None:
        whole = pc.equal(pc.bit_wise_and(pc.bit_wise_or(spans.starts, spans.sizes), 7), 0)
        _require(whole, path, "a nested value of no whole number of words")

    def _elements(self, element_type: SparkType, spans: _Spans, path: str) -> tuple[Any, Any]:
        """Decode the arrays at `spans`. Return the offsets of a ListArray (see `_ends`), and the
        elements of all arrays, one array after the other."""
        width = element_type.width if isinstance(element_type, FixedType) else WORD_BYTES
        self._check_words(spans, path)
        _require(pc.greater_equal(spans.sizes, WORD_BYTES), path, "an array that is too short")
        counts = self._words(spans.starts)
        plausible = pc.and_(pc.greater_equal(counts, 0), pc.less_equal(counts, spans.sizes))
        _require(plausible, path, "an array of a wrong number of elements")
        header = pc.add(pc.shift_left(pc.shift_right(pc.add(counts, _BITS - 1), 6), 3), WORD_BYTES)
        fixed = pc.add(header, pc.bit_wise_and(pc.add(pc.multiply(counts, width), 7), -8))
        _require(pc.less_equal(fixed, spans.sizes), path, "an array that is too short")
        ends = self._ends(counts, path)
        total = ends[-1].as_py()
        lists = pa.ListArray.from_arrays(ends, pa.nulls(total))
        parents = pc.list_parent_indices(lists)
        places = pc.subtract(_counted(total), ends.cast(pa.int64()).take(parents))
        starts = spans.starts.take(parents)
        bits = self._words(
            pc.add(pc.add(starts, WORD_BYTES), pc.shift_left(pc.shift_right(places, 6), 3))
        )
        positions = pc.add(pc.add(starts, header.take(parents)), pc.multiply(places, width))
        present = _present(bits, pc.bit_wise_and(places, _BITS - 1), positions)
        owners = _Spans(starts, spans.sizes.take(parents))
        return ends, self.values(element_type, _Slots(present, owners, fixed.take(parents)), path)

    def _ends(self, counts: _Array, path: str) -> Any:
        """0 and the running sum of `counts`, as int32. Raises MalformedRowError if the sum is
        greater than the bytes of the buffer."""
        counts = pc.fill_null(counts, 0)
        total = pc.sum(counts).as_py() or 0
        if total > self._bytes:
            raise _malformed(path, "values that overlap")
        ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
        return ends.cast(pa.int32())

    def _maps(self, map_type: MapType, spans: _Spans, path: str) -> Any:
        self._check_words(spans, path)
        _require(pc.greater_equal(spans.sizes, WORD_BYTES), path, "a map that is too short")
        key_bytes = self._words(spans.starts)
        rest = pc.subtract(pc.subtract(spans.sizes, WORD_BYTES), key_bytes)
        inside = pc.and_(pc.greater_equal(key_bytes, 0), pc.greater_equal(rest, 0))
        _require(inside, path, "keys that lead out of the map")
        after = pc.add(spans.starts, WORD_BYTES)
        keys_at, values_at = _Spans(after, key_bytes), _Spans(pc.add(after, key_bytes), rest)
        ends, keys = self._elements(map_type.key, keys_at, f"{path}.key")
        value_ends, values = self._elements(map_type.value, values_at, f"{path}.value")
        if not ends.equals(value_ends):
            raise _malformed(path, "a map of more keys than values, or fewer")
        if keys.null_count:
            raise _malformed(path, "a map with a null key")
        entries = pa.StructArray.from_arrays([keys, values], fields=[*map_type.arrow.field(0).type])
        return _assembled(map_type.arrow, spans.starts, [ends], [entries])

    def _variants(self, variant_type: VariantType, spans: _Spans, path: str) -> Any:
        whole = pc.equal(pc.bit_wise_and(spans.starts, 3), 0)
        _require(whole, path, "a variant at an odd place")
        _require(pc.greater_equal(spans.sizes, 4), path, "a variant that is too short")
        value_bytes = self._integers(spans.starts, 4).cast(pa.int64())
        rest = pc.subtract(pc.subtract(spans.sizes, 4), value_bytes)
        inside = pc.and_(pc.greater_equal(value_bytes, 0), pc.greater_equal(rest, 0))
        _require(inside, path, "a value that leads out of its variant")
        after = pc.add(spans.starts, 4)
        value = self._binary(_Spans(after, value_bytes), pa.binary(), path)
        metadata = self._binary(_Spans(pc.add(after, value_bytes), rest), pa.binary(), path)
        return _assembled(variant_type.arrow, spans.starts, [], [value, metadata])

    def _variable(self, arrow: pa.DataType, spans: _Spans, path: str) -> Any:
        if pa.types.is_decimal(arrow):
            return self._decimals(spans, arrow, path)
        if arrow == pa.month_day_nano_interval():
            return self._intervals(spans, path)
        return self._binary(spans, arrow, path)

    def _binary(self, spans: _Spans, arrow: pa.DataType, path: str) -> Any:
        """Copy the bytes at `spans`, one value after the other."""
        ends = self._ends(spans.sizes, path)
        begins = pc.fill_null(spans.starts, 0)
        stops = pc.add(begins, pc.fill_null(spans.sizes, 0))
        places = zip(begins.to_pylist(), stops.to_pylist(), strict=True)
        data = pa.py_buffer(b"".join([self._content[begin:stop] for begin, stop in places]))
        buffers = [_validity(spans.starts), ends.buffers()[1], data]
        array = pa.Array.from_buffers(arrow, len(spans.starts), buffers)
        if arrow == pa.string():
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise _malformed(path, "a string that is not UTF-8") from error
        return array

    def _decimals(self, spans: _Spans, arrow: Any, path: str) -> Any:
        """Decode unscaled values: big-endian two's complement, in as few bytes as needed."""
        sizes = spans.sizes
        short = pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, _MAX_DECIMAL_BYTES))
        _require(short, path, "a decimal of a wrong size")
        values = [
            0 if data is None else int.from_bytes(data, "big", signed=True)
            for data in self._binary(spans, pa.binary(), path).to_pylist()
        ]
        if any(abs(value) >= 10**arrow.precision for value in values):
            raise _malformed(path, f"a decimal of more than {arrow.precision} digits")
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
        buffers = [_validity(spans.starts), pa.py_buffer(data)]
        return pa.Array.from_buffers(arrow, len(values), buffers)

    def _intervals(self, spans: _Spans, path: str) -> Any:
        """Decode months and days, an int each, and microseconds."""
        self._check_words(spans, path)
        _require(pc.equal(spans.sizes, 16), path, "an interval of a wrong size")
        micros = self._words(pc.add(spans.starts, WORD_BYTES))
        small = pc.and_(pc.less(micros, _MICROS_LIMIT), pc.greater(micros, -_MICROS_LIMIT))
        _require(small, path, "an interval whose nanoseconds do not fit into 64 bits")
        months_and_days = self._words(spans.starts)
        return _in_pairs(months_and_days, pc.multiply(micros, 1000), pa.month_day_nano_interval())


def _typed(raw: Any, arrow: Any, path: str) -> Any:
    """Convert integers to values of the type `arrow`, which has the same width."""
    if arrow == pa.bool_():
        return pc.not_equal(raw, 0)
    if pa.types.is_decimal(arrow):
        limit = 10**arrow.precision
        inside = pc.and_(pc.less(raw, limit), pc.greater(raw, -limit))
        _require(inside, path, f"a decimal of more than {arrow.precision} digits")
        return _in_pairs(raw, pc.shift_right(raw, _BITS - 2), arrow)
    if arrow == pa.month_day_nano_interval():
        months = pc.bit_wise_and(raw.cast(pa.int64()), _LOW_HALF)
        return _in_pairs(months, pc.multiply(months, 0), arrow)
    if pa.types.is_time(arrow):
        inside = pc.and_(pc.greater_equal(raw, 0), pc.less(raw, _NANOS_OF_DAY))
        _require(inside, path, "a time that is not of a day")
    return raw.view(arrow)


def _in_pairs(low: _Array, high: _Array, arrow: pa.DataType) -> Any:
    """Join lower and higher halves to values of 16 bytes."""
    count = len(low)
    places = _counted(2 * count)
    order = pc.add(pc.shift_right(places, 1), pc.multiply(pc.bit_wise_and(places, 1), count))
    halves = pa.concat_arrays([pc.fill_null(low, 0), pc.fill_null(high, 0)]).take(order)
    return pa.Array.from_buffers(arrow, count, [_validity(low), halves.buffers()[1]])


def _assembled(arrow: pa.DataType, starts: _Array, ends: list[Any], children: list[Any]) -> Any:
    """A nested array, null where `starts` is null."""
    buffers = [_validity(starts), *(end.buffers()[1] for end in ends)]
    return pa.Array.from_buffers(arrow, len(starts), buffers, children=children)


def _validity(array: _Array) -> pa.Buffer | None:
    if array.null_count == 0:
        return None
    buffer: pa.Buffer = pa.concat_arrays([array.is_valid()]).buffers()[1]
    return buffer


def _present(bits: _Array, place: _Array | int, positions: _Array) -> _Array:
    """Return `positions`, with null for each null value. `place`: the number of the value's null
    bit in `bits`."""
    # Arrow shifts a signed number of 64 bits by 62 at most.
    shifts = (
        place.cast(pa.uint64()) if isinstance(place, pa.Array) else pa.scalar(place, pa.uint64())
    )
    shifted = pc.shift_right(bits.view(pa.uint64()), shifts)
    null = pc.bit_wise_and(shifted, pa.scalar(1, pa.uint64())).cast(pa.bool_())
    return pc.if_else(null, pa.scalar(None, pa.int64()), positions)


def _counted(count: int) -> _Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _require(condition: _Array, path: str, problem: str) -> None:
    """Raise MalformedRowError if `condition` is false anywhere. Null counts as true."""
    if pc.all(condition).as_py() is False:
        raise _malformed(path, problem)


def _malformed(path: str, problem: str) -> MalformedRowError:
    return MalformedRowError(f"column {path} has {problem}")
