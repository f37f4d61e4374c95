"""A batch of many rows into a table:
python -m tests.support.tables.large_batch FOLDER ROWS [OPTION=VALUE…] write | commit | stream

`write` writes the files of the tasks. `commit` publishes the files, as a driver does. Both print
the peak memory of the process, in bytes. `stream` is a whole application in a Java heap of 1 GiB,
which reads the rows from files in a single batch.
"""

from __future__ import annotations

import pickle
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import spark_state
from checkpoint_store.tables.table_store import TableFileWriter
from datasources.sink.opened_tables import open_planned, plan_of_sink
from datasources.sink.table_rows import rows_to_write
from datasources.sink.table_sink import FilesMessage, TableBatchWriter, WrittenBatch

SCHEMA = StructType([StructField(name, LongType()) for name in ("id", "at", "value")])
TASK_ROWS = 1_000_000


def rows_of_task(task: int) -> pa.Table:
    """The rows of a single task: a million rows. No other task has the same keys."""
    ids = pa.array(np.arange(task * TASK_ROWS, (task + 1) * TASK_ROWS))
    return pa.table({"id": ids, "at": ids, "value": ids})


def stream(folder: Path, tasks: int, options: dict[str, str]) -> None:
    """Write the rows into files, and stream the files into the table in one batch."""
    (folder / "input").mkdir()
    for task in range(tasks):
        pq.write_table(rows_of_task(task), folder / "input" / f"{task}.parquet")
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    session = spark_state.configure(builder.config("spark.ui.enabled", "false")).getOrCreate()
    frame = session.readStream.schema(SCHEMA).parquet(str(folder / "input"))
    writer = frame.writeStream.format("cowstate").options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(f"{folder}/table").awaitTermination()
    session.stop()


def main() -> None:
    """Run one of the three steps."""
    folder, rows, *settings, step = sys.argv[1:]
    options = {"keys": "id", **dict(setting.split("=") for setting in settings)}
    tasks = int(rows) // TASK_ROWS
    if step == "stream":
        return stream(Path(folder), tasks, options)
    plan = plan_of_sink({"path": f"{folder}/table", **options}, SCHEMA)
    messages = Path(folder) / "messages"
    if step == "write":
        store = open_planned(plan)
        written = []
        for task in range(tasks):
            table = rows_to_write(rows_of_task(task), plan)
            file = store.write_rows("changelog", table, TableFileWriter("job", 0, task, 0))
            batch = WrittenBatch("job", 0, None)
            written.append(FilesMessage(plan.metadata, batch, task, (file,), None, 2.0**40))
        messages.write_bytes(pickle.dumps(written))
    else:
        TableBatchWriter(plan).commit(pickle.loads(messages.read_bytes()))
    return print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main()
