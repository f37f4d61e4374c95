"""Rows of a test for a ScriptedOperator, as Arrow columns with key groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from spark_state.errors import ConfigurationError
from spark_state.key_group_assignment import is_hashable_type
from spark_state.key_group_hash import key_groups_of
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.processor.schemas import arrow_schema, fields_text, have_same_types
from spark_state.testing.ddl_schemas import schema_of


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Converter for rows with a key. `what`: name of the rows, for errors. `schema`: schema of the
    rows. `keys`: names of the key columns."""

    what: str
    schema: StructType
    keys: tuple[str, ...]

    @classmethod
    def of(cls, what: str, given: StructType | str, key: str | Sequence[str]) -> KeyedRows:
        """Return the converter for rows with this schema and key. Raises ConfigurationError for an
        invalid schema or key."""
        keyed = cls(what, schema_of(given, what), (key,) if isinstance(key, str) else tuple(key))
        for name in keyed.keys:
            keyed.check_has(name)
            if not is_hashable_type(keyed.schema[name].dataType.jsonValue()):
                raise ConfigurationError(f"column {name!r} of {keyed.schema[name]} can be no key")
        return keyed

    @property
    def layout(self) -> InputLayout:
        """The positions of the columns."""
        names = tuple(self.schema.names)
        return InputLayout(names, tuple(names.index(key) for key in self.keys))

    @property
    def key_fields(self) -> list[StructField]:
        return [self.schema[name] for name in self.keys]

    def check_has(self, name: str) -> None:
        """Raise ConfigurationError unless there is a column of this name."""
        if name not in self.schema.names:
            raise ConfigurationError(
                f"{name!r} is no column of {self.what}, which are {', '.join(self.schema.names)}"
            )

    def check_same_key(self, other: KeyedRows) -> None:
        """Raise ConfigurationError unless both keys have the same types."""
        if not have_same_types(self.key_fields, other.key_fields):
            raise ConfigurationError(
                f"{other.what} has the key ({fields_text(other.key_fields)}), {self.what} "
                f"({fields_text(self.key_fields)}): both need the same types, in the same order"
            )

    def columns(self, rows: Iterable[Any]) -> list[Any]:
        """Convert rows to Arrow columns. A row is a tuple, a Row or a dict."""
        values = [self._values(row) for row in rows]
        return [
            pa.array([row[index] for row in values], field.type)
            for index, field in enumerate(arrow_schema(self.schema))
        ]

    def key_groups(self, columns: Sequence[Any], max_parallelism: int) -> list[int]:
        types = [field.dataType.jsonValue() for field in self.key_fields]
        of_key = [columns[index] for index in self.layout.key_indexes]
        key_groups: list[int] = key_groups_of(of_key, types, max_parallelism).tolist()
        return key_groups

    def _values(self, row: Any) -> tuple[Any, ...]:
        names = self.schema.names
        if isinstance(row, dict):
            values = tuple(row[name] for name in names) if row.keys() == set(names) else ()
        else:
            values = () if isinstance(row, str) or not isinstance(row, Iterable) else tuple(row)
        if len(values) != len(names):
            raise ConfigurationError(
                f"{row!r} does not fit {self.what}: give a tuple of {', '.join(names)}, a Row, or "
                "a dict with these keys, with None where a column is null"
            )
        return values
