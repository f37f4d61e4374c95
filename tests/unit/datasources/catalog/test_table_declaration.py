"""CREATE TABLE accepts valid declarations and refuses invalid declarations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructType

from checkpoint_store.errors import NotATableError, TableMismatchError
from datasources.catalog.table_declaration import declared_schema
from datasources.sink.opened_tables import plan_of_sink
from spark_state.errors import ConfigurationError, KeyGroupError
from tests.support.tables.table_jobs import version_files

COLUMNS = StructType().add("id", LongType()).add("v", StringType())


def declared(
    columns: StructType = COLUMNS,
    properties: tuple[str, ...] = (),
    may_lack_keys: bool = False,
    **options: str,
) -> StructType:
    declaration = {
        "columns": columns.jsonValue(),
        "properties": list(properties),
        "warehouse": "/tmp/warehouse",
        "mayLackKeys": may_lack_keys,
    }
    return declared_schema({**options, "inCatalog": "true", "declaration": json.dumps(declaration)})


class TestNew:
    def test_a_table_may_be_declared_and_nothing_is_made(self, tmp_path: Path) -> None:
        path = str(tmp_path / "table")
        assert declared(path=path, keys="id", sequenceBy="v") == COLUMNS
        assert declared(keys="id") == COLUMNS
        assert not Path(path).exists()

    @pytest.mark.parametrize("where", [{}, {"path": "/tmp/no/such/table"}])
    def test_keys_may_be_missing_only_where_a_write_names_them(self, where: dict[str, str]) -> None:
        with pytest.raises(
            ConfigurationError, match=r'/.* yet, and option keys is .*\("keys", "id"\)'
        ):
            declared(**where)
        assert declared(may_lack_keys=True, **where) == COLUMNS

    @pytest.mark.parametrize(
        ("options", "error", "reason"),
        [
            ({"keys": "no"}, ConfigurationError, "'no', which is not a column"),
            ({"keys": "id", "sequenceBy": "no"}, ConfigurationError, "'no', which is not a column"),
            ({"keys": "id", "key": "v"}, ConfigurationError, "unknown option key "),
            ({"keys": "id", "maxFilesPerTrigger": "0"}, ConfigurationError, "maxFilesPerTrigger"),
            ({"keys": "m"}, KeyGroupError, "m"),
        ],
    )
    @pytest.mark.parametrize("is_placed", [True, False])
    def test_options_and_columns_that_cannot_be_are_refused(
        self,
        options: dict[str, str],
        error: type[Exception],
        reason: str,
        is_placed: bool,
        tmp_path: Path,
    ) -> None:
        columns = StructType([*COLUMNS]).add("m", MapType(StringType(), StringType()))
        where = {"path": str(tmp_path / "table")} if is_placed else {}
        with pytest.raises(error, match=reason):
            declared(columns, may_lack_keys=True, **where, **options)

    def test_a_property_that_is_an_option_is_refused(self) -> None:
        assert declared(properties=("team", "comment"), keys="id") == COLUMNS
        with pytest.raises(ConfigurationError, match="TBLPROPERTIES has Keys, which is an option"):
            declared(properties=("Keys",), keys="id")

    def test_a_place_that_is_taken_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(NotATableError):
            declared(path=str(tmp_path), keys="id")


class TestThere:
    @pytest.fixture
    def empty(self, tmp_path: Path) -> dict[str, Any]:
        """Return the options of a table that was created and has no version yet."""
        options = {"path": str(tmp_path / "table")}
        plan_of_sink({**options, "keys": "id"}, COLUMNS)
        assert version_files(options["path"]) == []
        return options

    def test_its_keys_need_not_be_named_again(self, empty: dict[str, Any]) -> None:
        assert declared(**empty, may_lack_keys=True) == declared(**empty) == COLUMNS

    def test_other_keys_than_the_tables_are_refused(self, empty: dict[str, Any]) -> None:
        with pytest.raises(TableMismatchError, match="keys"):
            declared(**empty, keys="v")
