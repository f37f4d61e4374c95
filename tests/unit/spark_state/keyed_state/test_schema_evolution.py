"""Allowed changes of a state's schema convert the stored values, and other changes are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from checkpoint_store.state_reader import open_store
from spark_state.errors import StateMigrationError
from spark_state.keyed_state.schema_evolution import check_evolution
from spark_state.processor.schemas import column_schema, state_descriptor
from spark_state.state_descriptor import StateDescriptor, StateKind
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.tables.table_rows_of import schema_json


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def described(kind: StateKind, *schemas: StructType, ttl_ms: int | None = None) -> StateDescriptor:
    return state_descriptor("s", kind, column_schema(kind, "s", schemas).json(), ttl_ms)


WIDER: list[tuple[DataType, DataType]] = [
    (ByteType(), ShortType()),
    (ByteType(), LongType()),
    (IntegerType(), LongType()),
    (FloatType(), DoubleType()),
    (IntegerType(), DoubleType()),
    (LongType(), FloatType()),
]
OTHER: list[tuple[DataType, DataType]] = [
    (LongType(), StringType()),
    (StringType(), LongType()),
    (DecimalType(10, 2), DecimalType(12, 2)),
    (DateType(), StringType()),
    (ArrayType(LongType()), LongType()),
    (MapType(StringType(), LongType()), MapType(LongType(), LongType())),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDER)
@pytest.mark.parametrize("nesting", [lambda t: t, ArrayType, lambda t: struct(f=t)])
def test_numbers_may_become_wider_and_not_narrower(
    narrow: DataType, wide: DataType, nesting: Any
) -> None:
    was, now = (described("value", struct(n=nesting(kind))) for kind in (narrow, wide))
    check_evolution(was, now)
    with pytest.raises(StateMigrationError, match=r"^\[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION"):
        check_evolution(now, was)


@pytest.mark.parametrize(("stored", "declared"), OTHER)
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_other_changes_of_a_type_are_refused(
    stored: DataType, declared: DataType, kind: StateKind
) -> None:
    keys = [struct(k=LongType())] if kind == "map" else []
    was, now = (described(kind, *keys, struct(n=data_type)) for data_type in (stored, declared))
    with pytest.raises(StateMigrationError, match="Schema evolution is not possible: state 's'"):
        check_evolution(was, now)


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_fields_may_come_go_and_change_places(kind: StateKind) -> None:
    keys = [struct(k=LongType())] if kind == "map" else []
    was = described(kind, *keys, struct(a=LongType(), b=StringType()))
    for schema in (
        struct(a=LongType()),
        struct(b=StringType(), a=LongType()),
        struct(c=ArrayType(LongType()), b=StringType()),
    ):
        check_evolution(was, described(kind, *keys, schema))


def test_a_new_field_and_one_that_was_nullable_must_be_nullable() -> None:
    was = described("value", struct(a=LongType()))
    strict = StructType([StructField("a", LongType()), StructField("b", LongType(), False)])
    with pytest.raises(StateMigrationError, match="new field 'b' must be nullable"):
        check_evolution(was, described("value", strict))
    with pytest.raises(StateMigrationError, match="field 'a' may be null in the store"):
        check_evolution(was, described("value", StructType([StructField("a", LongType(), False)])))


def test_the_user_key_of_a_map_stays() -> None:
    was = described("map", struct(k=IntegerType()), struct(v=LongType()))
    with pytest.raises(StateMigrationError, match="the keys of field 'map_value' cannot change"):
        check_evolution(was, described("map", struct(k=LongType()), struct(v=LongType())))


def test_another_kind_has_sparks_condition_and_names_both() -> None:
    was, now = described("value", struct(n=LongType())), described("list", struct(n=LongType()))
    with pytest.raises(
        StateMigrationError,
        match=r"^\[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE\] Cannot change s to ListState .*"
        "declare a value state",
    ):
        check_evolution(was, now)


class Versions(StatefulProcessor):
    """A processor whose states have another schema in each version. Emits the values in the
    states."""

    def __init__(self, version: int, ttl_ms: int | None = None) -> None:
        self._version = version
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        schema = [
            struct(n=IntegerType(), inner=struct(x=FloatType(), gone=StringType())),
            struct(added=StringType(), inner=struct(y=LongType(), x=DoubleType()), n=LongType()),
        ][self._version]
        self._value = handle.getValueState("value", schema)
        self._list = handle.getListState("list", schema)
        self._map = handle.getMapState("map", struct(k=LongType()), schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if self._version == 0:
                value: Any = (row.value, (0.5, "gone"))
            else:
                kept = [self._value.get(), *self._list.get(), self._map.getValue((1,))]
                assert kept == [(None, Row(y=None, x=0.5), 7)] * 3
                assert kept[0][1].x == 0.5
                value = ("new", (1 << 40, 0.25), row.value << 33)
            self._value.update(value)
            self._list.put([value])
            self._map.updateValue((1,), value)
        return iter([])

    def close(self) -> None:
        pass


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("snapshots_after", [1, 100])
def test_values_take_the_new_form_when_they_are_read(
    tmp_path: Path, restarts: bool, snapshots_after: int
) -> None:
    with Maintenance() as maintenance:
        host = Host(spec_of(tmp_path, 0, snapshots_after)).open(maintenance)
        host.epoch(0, [("a", 7), ("b", 7)])
        host.epoch(1, [("b", 7)])
        host.finish_maintenance()
        host.spec = replace(spec_of(tmp_path, 1, snapshots_after), plan_id="second")
        host.run_id = "run-2"
        if restarts:
            host.open(maintenance)
        host.epoch(2, [("a", 5)])
        url = host.request(0, 0).store_url
        old = {"added": None, "inner": {"y": None, "x": 0.5}, "n": 7}
        new = {"added": "new", "inner": {"y": 1 << 40, "x": 0.25}, "n": 5 << 33}
        rows: list[dict[str, Any]] = open_store(url, state="value").read().to_pylist()
        assert sorted(rows, key=repr) == [{"key": "a", **new}, {"key": "b", **old}]
        first = {"n": 7, "inner": {"x": 0.5, "gone": "gone"}}
        rows = open_store(url, state="value").read(1).to_pylist()
        assert sorted(rows, key=repr) == [{"key": "a", **first}, {"key": "b", **first}]
        for state in ("list", "map"):
            rows = open_store(url, state=state).read().to_pylist()
            (first_of_a,), (first_of_b,) = (row[f"{state}_value"] for row in sorted(rows, key=repr))
            values = [first_of_a, first_of_b]
            assert (values if state == "list" else [value[1] for value in values]) == [new, old]
            changes = open_store(url, state=state).changes(1).to_pylist()
            assert [change["_change_type"] for change in changes] == [
                "update_preimage",
                "update_postimage",
            ]


def spec_of(folder: Path, version: int, snapshots_after: int) -> Any:
    spec = operator(folder, Versions(version), key_schema_json=schema_json(key="string"))
    return replace(
        spec, checkpoints=replace(spec.checkpoints, min_epochs_for_snapshot=snapshots_after)
    )


class Numbers(StatefulProcessor):
    """A processor that keeps the values of rows as numbers of one type."""

    def __init__(self, data_type: DataType) -> None:
        self._schema = struct(a=data_type)

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._value.update((row.value,))
        return iter([])

    def close(self) -> None:
        pass


@pytest.mark.parametrize("backend", [BackendSettings(), BackendSettings(kind="rocksdb")])
def test_a_number_that_a_fraction_does_not_hold_is_refused_and_kept(
    tmp_path: Path, backend: BackendSettings
) -> None:
    number = (1 << 53) + 1
    whole, fraction = (
        operator(
            tmp_path,
            Numbers(data_type),
            backend=backend,
            key_schema_json=schema_json(key="string"),
        )
        for data_type in (LongType(), DoubleType())
    )
    with Maintenance() as maintenance:
        host = Host(whole).open(maintenance)
        host.epoch(0, [("a", number), ("b", 1)])
        host.spec, host.run_id = replace(fraction, plan_id="second"), "run-2"
        host.open(maintenance)
        with pytest.raises(
            StateMigrationError, match=rf"state 'value' .* int64.* double.*{number}.*2\^53"
        ):
            host.epoch(1, [("b", 2)])
        host.spec, host.run_id = replace(whole, plan_id="third"), "run-3"
        host.open(maintenance)
        host.epoch(1, [("b", 2)])
        rows = open_store(host.request(0, 0).store_url).read().to_pylist()
        assert sorted(row["a"] for row in rows) == [2, number]
        host.close()
