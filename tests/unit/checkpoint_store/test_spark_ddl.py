"""Schemas in messages: what Spark would take back."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from checkpoint_store.spark_ddl import schema_ddl, type_ddl

DDL = (
    "a tinyint, b smallint, c int, d bigint, e float, f double, g decimal(10,2), h boolean, "
    "i string, j binary, k date, l timestamp, m timestamp_ntz, n array<int>, "
    "o map<string,array<bigint>>, p struct<x:int,`y z`:struct<q:string>>, `a``b` string, "
    "r interval day to second, s interval year, t void"
)


@pytest.mark.spark
def test_a_schema_reads_as_it_is_written(spark: SparkSession) -> None:
    schema = StructType.fromDDL(DDL)
    assert schema_ddl(schema.json()) == DDL
    assert StructType.fromDDL(schema_ddl(schema.json())) == schema


def test_a_user_defined_type_is_what_it_is_stored_as_and_others_stay_as_they_are() -> None:
    udt = {"type": "udt", "sqlType": {"type": "array", "elementType": "double"}}
    assert type_ddl(udt) == "array<double>"
    assert type_ddl({"type": "new"}) == '{"type": "new"}'
