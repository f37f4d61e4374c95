"""Tables work with special characters in paths and column names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from checkpoint_store.errors import TableSchemaError
from checkpoint_store.state_reader import open_store
from checkpoint_store.tables.table_store import TableCommit, TableFileWriter
from datasources.options.table_options import parse_reader_options
from datasources.sink.opened_tables import open_planned, plan_of_sink
from datasources.sink.table_rows import rows_to_write
from spark_state.errors import ConfigurationError

SCHEMA = StructType([StructField("id", LongType()), StructField("at", LongType())])
NAMES = ["{x}", "{", "{0}", "%s", "a%20b", "[a-z]*", "a?b#c", " a ", "a'b\"", "é中", "~", "$HOME"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_written_and_read_at_any_path(tmp_path: Path, name: str) -> None:
    url = str(tmp_path / name)
    plan = plan_of_sink({"path": url, "keys": "ID", "sequenceBy": "AT"}, SCHEMA)
    table = open_planned(plan)
    rows = rows_to_write(pa.table({"id": [1, 2], "at": [3, 4]}), plan)
    file = table.write_rows("changelog", rows, TableFileWriter("job", 0, 0, 0))
    table.commit(TableCommit("job", None, 0, plan.schema_json, (file,)))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    stored = parse_reader_options({"path": url}).url
    assert open_store(stored).read().sort_by("id").to_pydict() == {"id": [1, 2], "at": [3, 4]}


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_path_as_it_is(tmp_path: Path, name: str) -> None:
    url = str(tmp_path / name)
    for options, column in (({"keys": "key"}, "'key'"), ({"sequenceBy": "on"}, "'on'")):
        with pytest.raises(ConfigurationError) as caught:
            plan_of_sink({"path": url, "keys": "id", **options}, SCHEMA)
        assert url in str(caught.value)
        assert column in str(caught.value)


def test_a_key_column_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    schema = StructType([StructField("last, first", LongType()), StructField("at", LongType())])
    plan = plan_of_sink({"path": str(tmp_path / "t"), "keys": "`last, first`"}, schema)
    assert plan.key_names == ("last, first",)


def test_keys_in_another_case_are_the_keys_of_the_table(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    plan_of_sink({"path": url, "keys": "id"}, SCHEMA)
    assert plan_of_sink({"path": url, "keys": "ID"}, SCHEMA).key_names == ("id",)
    spelled = StructType([StructField("ID", LongType()), StructField("at", LongType())])
    for keys in ({}, {"keys": "id"}, {"keys": "ID"}):
        with pytest.raises(TableSchemaError, match=r"no column 'id', a key .*; rename 'ID'"):
            plan_of_sink({"path": url, **keys}, spelled)
