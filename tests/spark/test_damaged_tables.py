"""Spark reads and writes damaged tables right or with clear errors.

See tests/fault/test_damaged_tables.py for all damages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.tables.table_jobs import Upserts, write

pytestmark = pytest.mark.spark


@pytest.fixture
def upserts(spark: SparkSession, tmp_path: Path) -> Upserts:
    """A table with versions 0 and 1, each from its own batch."""
    query = Upserts(spark, tmp_path)
    for number in (1, 2):
        query.feed((number, "a", number))
        query.run()
    return query


def newest_version(upserts: Upserts) -> Path:
    return Path(upserts.table, "versions", max(upserts.versions()))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:-2] + b"2}"], ids=["cut", "changed"]
)
def test_a_damaged_newest_version_is_an_error_for_readers_and_writers_and_stays(
    upserts: Upserts, damage: Callable[[bytes], bytes]
) -> None:
    path = newest_version(upserts)
    intact = path.read_bytes()
    damaged = damage(intact)
    path.write_bytes(damaged)
    another = upserts.spark.createDataFrame([(3, "b", 3)], upserts.schema)
    upserts.feed((4, "c", 4))
    for use in (
        upserts.rows,
        lambda: write(another, upserts.table, takeOver="true"),
        upserts.run,
    ):
        with pytest.raises(PySparkException, match=rf"{path.name} in .* is damaged"):
            use()
    assert path.read_bytes() == damaged
    assert upserts.rows(versionAsOf=0) == [(1, "a", 1)]
    path.write_bytes(intact)
    upserts.run()
    assert upserts.rows() == [(1, "a", 1), (2, "a", 2), (4, "c", 4)]


def test_a_query_is_told_that_its_newest_version_is_gone_and_runs_its_batch_again(
    upserts: Upserts,
) -> None:
    newest_version(upserts).unlink()
    upserts.feed((3, "a", 3))
    with pytest.raises(PySparkException, match=r"LostVersionError.*run again from batch 1"):
        upserts.run()
    assert upserts.rows() == [(1, "a", 1)]
    # The repair in docs/how-to/troubleshoot.md.
    for path in ("commits/1", "commits/.1.crc", "offsets/2", "offsets/.2.crc"):
        (upserts.checkpoint / path).unlink()
    upserts.run()
    assert upserts.rows() == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]
