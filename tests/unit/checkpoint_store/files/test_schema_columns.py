"""Schemas of keys, compared."""

from __future__ import annotations

import pytest

from checkpoint_store.files.schema_columns import is_same_but_for_nulls
from spark_state.testing.ddl_schemas import schema_of

KEY = "key struct<a: int, b: array<string>>"


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (KEY, True),
        ("key struct<a: int NOT NULL, b: array<string>>", True),
        ("key struct<a: bigint, b: array<string>>", False),
        ("key struct<b: array<string>, a: int>", False),
        (f"{KEY}, more int", False),
    ],
)
def test_keys_are_the_same_whatever_may_be_null_inside_of_them(given: str, same: bool) -> None:
    schema, other_schema = (schema_of(text, "key") for text in (KEY, given))
    assert is_same_but_for_nulls(schema.json(), other_schema.json()) is same
