"""The source gives one row in the first batch only, called as Spark calls a source."""

from __future__ import annotations

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_state.spark.input.first_batch_source import FirstBatchReader, FirstBatchSource


def reader() -> FirstBatchReader:
    source = FirstBatchSource({})
    made = cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))
    assert isinstance(made, FirstBatchReader)
    return made


def test_the_first_batch_has_one_row() -> None:
    start = reader().initialOffset()
    end = reader().latestOffset(start, ReadAllAvailable())
    assert end != start
    (partition,) = reader().partitions(start, end)
    assert list(reader().read(partition)) == [(1,)]


def test_there_is_no_batch_after_it_also_after_a_restart() -> None:
    first = reader().latestOffset(reader().initialOffset(), ReadAllAvailable())
    assert reader().latestOffset(first, ReadAllAvailable()) == first
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
