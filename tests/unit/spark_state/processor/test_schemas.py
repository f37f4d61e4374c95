"""State schemas that Spark refuses with Avro encoding are refused."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_state.processor.condition_errors import ProcessorHandleError
from spark_state.processor.schemas import check_nullable, column_schema, state_descriptor
from spark_state.state_descriptor import StateDescriptor, StateKind


def declared(kind: StateKind, *, nullable: bool, ttl_ms: int | None = None) -> StateDescriptor:
    value = StructType([StructField("n", IntegerType(), nullable)])
    never_null = StructType([StructField("k", IntegerType(), nullable=False)])
    schemas = (never_null, value) if kind == "map" else (value,)
    return state_descriptor("s", kind, column_schema(kind, "s", schemas).json(), ttl_ms)


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_with_avro_all_fields_of_values_and_elements_must_be_nullable(kind: StateKind) -> None:
    check_nullable([declared(kind, nullable=True)])
    with pytest.raises(ProcessorHandleError, match="column family s must be nullable"):
        check_nullable([declared(kind, nullable=True), declared(kind, nullable=False)])


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_with_avro_spark_does_not_look_into_states_that_expire(kind: StateKind) -> None:
    check_nullable([declared(kind, nullable=False, ttl_ms=1000)])
