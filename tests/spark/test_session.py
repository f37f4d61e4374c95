"""The session fixture of the other Spark tests works."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_session_is_small_and_runs_on_utc(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(10).selectExpr("sum(id)").first() == (45,)
