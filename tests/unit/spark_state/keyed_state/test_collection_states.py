"""List and map states behave as in PySpark, and a call costs no more than its elements."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.errors import StateMigrationError, StateValueError, UnsupportedOperationError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import column_schema, state_descriptor
from spark_state.state_descriptor import StateDescriptor, StateKind
from tests.support.operators.snapshot_tables import tables_of

KEYS = KeyColumns(("key",), (pa.string(),), ("string",))


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


NESTED = struct(
    n=IntegerType(),
    tags=ArrayType(StringType()),
    inner=struct(at=TimestampType(), sizes=MapType(StringType(), LongType())),
)
NAMED = struct(name=StringType(), n=LongType())
USER_KEY = struct(ratio=DoubleType(), path=ArrayType(IntegerType()))


def described(kind: StateKind, name: str, *schemas: StructType) -> StateDescriptor:
    return state_descriptor(name, kind, column_schema(kind, name, schemas).json())


@dataclass
class Backend:
    """A backend with a list state `l` and a map state `m`, whose current key is `a`."""

    element: StructType = NAMED
    user_key: StructType = NAMED
    value: StructType = NAMED

    def __post_init__(self) -> None:
        self.heap = HeapKeyedStateBackend(KeyGroupRange(0, 3), KEYS, STATE_FORMS)
        lists = self.heap.state(described("list", "l", self.element))
        maps = self.heap.state(described("map", "m", self.user_key, self.value))
        assert isinstance(lists, ListState)
        assert isinstance(maps, MapState)
        self.list, self.map = lists, maps
        self.heap.set_current_key(("a",), 1)

    def next_epoch(self) -> None:
        self.heap.seal()
        self.heap.set_current_key(("a",), 1)

    def restored(self) -> Backend:
        """Return another backend with the changes of the current epoch."""
        other = Backend(self.element, self.user_key, self.value)
        other.heap.apply(self.heap.changes().to_batches())
        other.heap.set_current_key(("a",), 1)
        return other


@pytest.fixture
def backend() -> Backend:
    return Backend()


def test_a_list_is_put_appended_to_and_cleared(backend: Backend) -> None:
    backend.list.put([("x", 1)])
    backend.list.appendValue(("y", 2))
    backend.list.appendList([["z", 3], Row(name=None, n=4)])
    assert backend.list.exists()
    assert list(backend.list.get()) == [("x", 1), ("y", 2), ("z", 3), (None, 4)]
    assert {type(element) for element in backend.list.get()} == {tuple}
    backend.list.put(iter([("w", 0)]))
    assert list(backend.list.get()) == [("w", 0)]
    backend.list.clear()
    assert not backend.list.exists()


def test_an_empty_list_is_none(backend: Backend) -> None:
    backend.list.appendList([])
    assert not backend.list.exists()
    backend.list.put([("x", 1)])
    backend.next_epoch()
    backend.list.appendList([])
    assert not backend.heap.changes().num_rows
    backend.list.put([])
    assert not backend.list.exists()
    assert backend.heap.changes()["_op"].to_pylist() == ["delete"]


def test_elements_are_those_of_the_first_step_whatever_is_done_meanwhile(backend: Backend) -> None:
    backend.list.put([("x", 1), ("y", 2)])
    elements = backend.list.get()
    backend.list.appendValue(("z", 3))
    assert next(elements) == ("x", 1)
    backend.list.appendValue(("w", 4))
    assert list(elements) == [("y", 2), ("z", 3)]
    elements = backend.list.get()
    next(elements)
    backend.list.clear()
    assert len(list(elements)) == 3


def test_a_list_appended_to_itself_is_there_twice(backend: Backend) -> None:
    backend.list.put([("x", 1), ("y", 2)])
    backend.list.appendList(backend.list.get())
    assert list(backend.list.get()) == [("x", 1), ("y", 2)] * 2


def test_user_keys_are_set_and_removed_one_by_one(backend: Backend) -> None:
    backend.map.updateValue(("x", 1), ("first", 1))
    backend.map.updateValue(Row(name="y", n=None), ["second", 2])
    backend.map.updateValue(("x", 1), (None, None))
    value = backend.map.getValue(("y", None))
    assert (value.name, value.n) == ("second", 2)
    assert isinstance(value, Row)
    assert backend.map.containsKey(("x", 1))
    entries = list(backend.map.iterator())
    assert entries == [(("x", 1), (None, None)), (("y", None), ("second", 2))]
    assert {type(part) for entry in entries for part in entry} == {tuple}
    assert entries == list(zip(backend.map.keys(), backend.map.values(), strict=True))
    backend.map.removeKey(("x", 2))
    backend.map.removeKey(("x", 1))
    assert list(backend.map.keys()) == [("y", None)]


@pytest.mark.parametrize("user_key", [("x", 1), ["x", 1], Row(name="x", n=1), Row("x", 1)])
def test_a_user_key_may_be_any_sequence(backend: Backend, user_key: Any) -> None:
    backend.map.updateValue(user_key, ("v", 1))
    assert backend.map.containsKey(("x", 1))
    assert backend.map.getValue(user_key) == backend.map.getValue(("x", 1))
    backend.map.removeKey(user_key)
    assert not backend.map.exists()


NAN_KEYS: list[tuple[Any, Any]] = [
    ((math.nan, [1]), (float("nan"), [1])),
    ((-0.0, None), (0.0, None)),
    ((1, []), (1.0, ())),
]


@pytest.mark.parametrize(("first", "equal"), NAN_KEYS)
def test_user_keys_that_are_equal_in_spark_are_one(first: Any, equal: Any) -> None:
    backend = Backend(user_key=USER_KEY)
    backend.map.updateValue(first, ("v", 1))
    for same in (backend, backend.restored()):
        assert same.map.containsKey(equal)
        same.map.updateValue(equal, ("v", 2))
        ((key, value),) = same.map.iterator()
        assert value == ("v", 2)
        assert isinstance(key[1], list | None)
        same.map.removeKey(first)
        assert not same.map.exists()


def test_nested_and_null_values_come_back_from_files_as_they_were_put() -> None:
    backend = Backend(NESTED, USER_KEY, NESTED)
    at = datetime.datetime(2020, 7, 1, 12, 30, 0, 123456)
    values = [(1, ["a", None], (at, {"s": 1})), (None, None, None), (2, [], (None, {}))]
    backend.list.put(values)
    for n, value in enumerate(values):
        backend.map.updateValue((None if n else math.inf, [n, None]), value)
    restored = backend.restored()
    for same in (backend, restored):
        assert list(same.list.get()) == values
        assert list(same.map.values()) == [values[1], values[2], values[0]]
        assert list(same.map.keys()) == [
            (None, [1, None]),
            (None, [2, None]),
            (math.inf, [0, None]),
        ]
        first = next(same.list.get())
        assert isinstance(first[2], Row)
        assert first[2].at == at
        assert same.map.getValue((math.inf, [0, None])).inner.sizes == {"s": 1}
    (written,) = tables_of(restored.heap.snapshot())
    assert sorted(written.to_pylist(), key=repr) == sorted(
        backend.heap.changes().to_pylist(), key=repr
    )


def test_what_is_handed_out_may_be_changed_without_changing_the_state() -> None:
    backend = Backend(NESTED, USER_KEY, NESTED)
    tags = ["a"]
    backend.list.put([(1, tags, None)])
    backend.map.updateValue((1.0, tags and [1]), (1, tags, None))
    for given in (
        tags,
        next(backend.list.get())[1],
        backend.map.getValue((1.0, [1])).tags,
        next(backend.map.values())[1],
        next(backend.map.iterator())[1][1],
        next(backend.map.keys())[1],
    ):
        given.append("changed")
    assert list(backend.list.get()) == [(1, ["a"], None)]
    assert list(backend.map.iterator()) == [((1.0, [1]), (1, ["a"], None))]


Call = Callable[[Backend], Any]
REFUSED: list[tuple[Call, str]] = [
    (
        lambda backend: backend.list.appendValue((1.5, 1)),
        "state 'l', an element: field 'name' expects string, got 1.5 of type float",
    ),
    (lambda backend: backend.list.appendValue("xy"), "state 'l', an element: 'xy' is not a tuple"),
    (lambda backend: backend.list.appendValue(None), "state 'l', an element: None is not a tuple"),
    (lambda backend: backend.list.appendValue(("x",)), r"has 1 fields, the schema has 2: name"),
    (lambda backend: backend.list.put(None), "state 'l': None is not a list of tuples"),  # type: ignore[arg-type]
    (lambda backend: backend.list.put(("x", 1)), "state 'l', an element: 'x' is not a tuple"),  # type: ignore[arg-type]
    (
        lambda backend: backend.list.appendList([("y", 2), ("z", "3")]),
        "state 'l', an element: field 'n' expects int64, got '3' of type str",
    ),
    (
        lambda backend: backend.map.updateValue(("x", "1"), ("v", 1)),
        "state 'm', a user key: field 'n' expects int64, got '1' of type str",
    ),
    (
        lambda backend: backend.map.updateValue(("x", 1), (2.5, 1)),
        "state 'm', a value: field 'name' expects string, got 2.5 of type float",
    ),
    (lambda backend: backend.map.updateValue(("x", 1), None), "state 'm', a value: None is not"),
    (lambda backend: backend.map.getValue("x"), "state 'm', a user key: 'x' is not a tuple"),
    (lambda backend: backend.map.containsKey(None), "state 'm', a user key: None is not a tuple"),
    (lambda backend: backend.map.removeKey((1,)), "state 'm', a user key: .* has 1 fields"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_and_changes_nothing(call: Call, message: str) -> None:
    backend = Backend()
    backend.list.put([("x", 1)])
    backend.map.updateValue(("x", 1), ("v", 1))
    backend.next_epoch()
    with pytest.raises(StateValueError, match=message):
        call(backend)
    assert not backend.heap.changes().num_rows


def test_a_map_in_a_user_key_is_refused_when_it_is_declared() -> None:
    nested = struct(parts=ArrayType(struct(sizes=MapType(StringType(), LongType()))))
    with pytest.raises(UnsupportedOperationError, match="a map in the user key of map state 'm'"):
        described("map", "m", nested, NAMED)


def test_a_kind_of_state_of_a_later_release_is_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="'s' is in the store as a bag state"):
        state_descriptor("s", "bag", NAMED.json())


@pytest.mark.parametrize(
    "other",
    [
        described("list", "m", NAMED),
        described("value", "m", column_schema("map", "m", [NAMED, NAMED])),
        described("map", "m", NAMED, struct(n=StringType())),
        described("map", "m", USER_KEY, NAMED),
    ],
)
def test_a_state_of_another_kind_or_schema_is_refused(other: StateDescriptor) -> None:
    with pytest.raises(StateMigrationError, match="'m' is in the store as"):
        Backend().heap.state(other)


def rows_of(backend: Backend) -> list[tuple[str, str, Any]]:
    """Return state, operation and element of each row of the epoch's changelog."""
    rows: list[dict[str, Any]] = backend.heap.changes().to_pylist()
    return [(row["_state"], row["_op"], row[row["_state"]]) for row in rows]


def put_and_seal(backend: Backend, elements: int) -> None:
    backend.list.put([("x", n) for n in range(elements)])
    for n in range(elements):
        backend.map.updateValue(("x", n), ("v", n))
    backend.next_epoch()


def test_changing_elements_copies_none_until_a_snapshot_needs_them() -> None:
    backend = Backend()
    put_and_seal(backend, 10)

    def change(n: int) -> None:
        backend.list.appendValue(("y", n))
        backend.list.appendList([("z", n)])
        backend.map.updateValue(("y", n), ("v", n))
        backend.map.removeKey(("y", n))

    def copied() -> int:
        held = [table._maps for table in backend.heap._tables]  # type: ignore[union-attr]
        before = [maps.get(("a",), 1) for maps in held]
        for n in range(20):
            change(n)
        return sum(maps.get(("a",), 1) is not b for maps, b in zip(held, before, strict=True))

    assert copied() == 0
    backend.next_epoch()
    assert copied() == 0
    backend.heap.snapshot()
    assert copied() == 2
    assert copied() == 0


def test_a_cleared_key_is_one_row_before_what_is_put_after_it() -> None:
    backend = Backend()
    put_and_seal(backend, 1000)
    backend.list.put([("new", 1)])
    backend.map.clear()
    assert rows_of(backend) == [
        ("l", "delete", None),
        ("l", "put", {"list_position": 0, "list_element": {"name": "new", "n": 1}}),
        ("m", "delete", None),
    ]
    backend.next_epoch()
    backend.map.updateValue(("x", 1), ("v", 1))
    backend.map.clear()
    assert rows_of(backend) == []


def test_an_iterator_gives_what_was_there_when_it_began(backend: Backend) -> None:
    put_and_seal(backend, 3)
    seen = []
    for key, _ in backend.map.iterator():
        seen.append(key)
        backend.map.removeKey(key)
        backend.map.updateValue((key[0], key[1] + 10), ("v", 0))
    assert seen == [("x", 0), ("x", 1), ("x", 2)]
    assert list(backend.map.keys()) == [("x", 10), ("x", 11), ("x", 12)]
    for name, n in backend.list.get():
        backend.list.appendValue((name, n + 10))
    assert [n for _, n in backend.list.get()] == [0, 1, 2, 10, 11, 12]
