"""`cowstate adopt` takes over the keys of Spark's own transformWithState."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoint_store.state_reader import open_store
from tests.support.provider.adopted_operators import SEEN, AdoptedJob, EveryState, store_of
from tests.support.provider.adoption_jobs import contents

pytestmark = pytest.mark.spark


def test_a_float_in_a_struct_of_the_key_has_one_form_in_the_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    number = F.when(F.col("value") == 3, F.lit("NaN")).otherwise(F.lit("-0.0")).cast("double")
    key = F.struct("key", F.struct(number.alias("x")).alias("inner"))
    base = AdoptedJob(spark, tmp_path / "base", EveryState(), key=key)
    base.feed([("a", 1), ("a", 3), (None, 3)])
    base.on_spark()
    expected, job = base.copy(tmp_path / "spark"), base.copy(tmp_path / "cowstate")
    assert job.adopt("--apply", "--force") == 0
    stored = open_store(store_of(job), state="total").read().column("key").to_pylist()
    numbers = sorted(math.copysign(1, row["inner"]["x"]) for row in stored)
    assert numbers == [1, 1, 1]
    base.feed([("a", 1), ("a", 3), (None, 3)])
    expected.on_spark()
    job.on_cowstate()
    # Spark shows -0.0 in a key unchanged.
    shown = sorted((key.replace("-0.0", "0.0"), seen) for key, seen in expected.shown())
    in_one_form = sorted((key.replace("-0.0", "0.0"), seen) for key, seen in job.shown())
    assert in_one_form == [(key, seen.replace("-0.0", "0.0")) for key, seen in shown]


class DeepKeys(AdoptedJob):
    """A job whose key has a number in a struct of a struct, as its input files do."""

    def feed(self, rows: Any) -> None:
        number = self.stream._files
        file = self.stream.input / f"{number:05d}.parquet"
        inner = pa.struct([("inner", pa.struct([("x", pa.float64())]))])
        keys = pa.array([{"inner": {"x": x}} for x, _ in rows], inner)
        pq.write_table(pa.table({"key": keys, "value": [value for _, value in rows]}), file)
        os.utime(file, (1_000 + number, 1_000 + number))
        self.stream._files += 1

    def output(self) -> DataFrame:
        schema = "key struct<inner: struct<x: double>>, value bigint"
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        grouped = reader.parquet(str(self.stream.input)).groupBy("key")
        return grouped.transformWithState(self.processor, SEEN, "update", self.mode)


def test_keys_that_would_become_one_are_refused_and_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = DeepKeys(spark, tmp_path, EveryState())
    for value, number in enumerate([-0.0, 0.0, 1.0]):
        job.feed([(number, value)])
    job.on_spark()
    totals = {key: json.loads(seen)[0] for key, seen in job.shown()}
    assert sorted(totals.values()) == [0, 1, 2], "Spark keeps both zeros apart"
    before = contents(job.checkpoint)
    assert job.adopt("--apply", "--force") == 2
    told = capsys.readouterr().err
    assert "would be the one key (key) = ({'inner': {'x': 0.0}},)" in told
    assert contents(job.checkpoint) == before
    assert not [path for path in Path(store_of(job)).rglob("*") if path.is_file()]
