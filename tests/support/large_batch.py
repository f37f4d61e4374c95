"""A batch of many rows into a table, in two processes:
python -m tests.support.large_batch FOLDER ROWS [OPTION=VALUE…] write | commit

`write` writes the files of the tasks, `commit` publishes them, as a driver does. Prints the most
memory of the process, in bytes.
"""

from __future__ import annotations

import pickle
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from checkpoint_store.tables.table_store import TableFileWriter
from datasources.opened_tables import open_planned, plan_of_sink
from datasources.table_rows import rows_to_write
from datasources.table_sink import FilesMessage, TableBatchWriter, WrittenBatch

SCHEMA = StructType([StructField(name, LongType()) for name in ("id", "at", "value")])
TASK_ROWS = 1_000_000


def main() -> None:
    """Run one of the two processes."""
    folder, rows, *settings, step = sys.argv[1:]
    options = dict(setting.split("=") for setting in settings)
    plan = plan_of_sink({"path": f"{folder}/table", "keys": "id", **options}, SCHEMA)
    messages = Path(folder) / "messages"
    if step == "write":
        opened = open_planned(plan)
        written = []
        for task in range(int(rows) // TASK_ROWS):
            ids = np.arange(task * TASK_ROWS, (task + 1) * TASK_ROWS)
            table = rows_to_write(pa.table({"id": ids, "at": ids, "value": ids}), opened.rows)
            file = opened.table.write_rows("changelog", table, TableFileWriter("job", 0, task, 0))
            batch = WrittenBatch("job", 0, None)
            written.append(FilesMessage(plan.metadata, batch, task, (file,), None, 2.0**40))
        messages.write_bytes(pickle.dumps(written))
    else:
        TableBatchWriter(plan).commit(pickle.loads(messages.read_bytes()))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main()
