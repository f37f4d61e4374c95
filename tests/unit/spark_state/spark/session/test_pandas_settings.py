"""Sizes in Spark's settings are read as Spark reads sizes."""

from __future__ import annotations

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.session.pandas_settings import bytes_of


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("67108864b", 64 << 20),
        ("64MB", 64 << 20),
        ("64m", 64 << 20),
        (" 2GB ", 2 << 30),
        ("3k", 3 << 10),
        ("1024", 1024),
        ("-1", -1),
        ("1TiB", 1 << 40),
    ],
)
def test_a_size_is_read_as_spark_reads_it(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "much", "1.5MB", "1XB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no size in bytes"):
        bytes_of(text)
