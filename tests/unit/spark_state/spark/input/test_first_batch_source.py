"""The source gives one row in the first batch only, called as Spark calls a source."""

from __future__ import annotations

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_state.spark.input.first_batch_source import FirstBatchSource


def test_only_the_first_batch_has_the_row_also_after_a_restart() -> None:
    source = FirstBatchSource({})
    reader = cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (partition,) = reader.partitions(start, end)
    assert list(reader.read(partition)) == [(1,)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end != start
