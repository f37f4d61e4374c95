"""Runs `cowstate compact`: a Spark job that folds the files of a table.

Each range of key groups gets a file. The command commits no version of the table and changes no
version. It publishes a separate object, a compaction, which says which files of a version the new
files replace. From then on readers use the new files, and the next commit builds upon the new
files. A stopped command leaves files that nothing names.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import key_group_range_of_subtask
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.object_names import COMPACTED
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.tables.table_compaction import compact_key_groups
from checkpoint_store.tables.table_store import TableFileWriter, TableStore
from checkpoint_store.tables.table_version import TableCompaction, TableVersion, compacted
from cowstate.command_session import command_session
from spark_state.errors import CowstateError
from spark_state.spark.session.worker_loading import called_in_workers

_PART_BYTES = 64 << 20
_TEXT = (
    "{url}, version {version}: {filesBefore} files of {bytesBefore:,} bytes are now {filesAfter} "
    "files of {bytesAfter:,} bytes"
)


class CompactionError(CowstateError):
    """Files of a table cannot be folded. The command does not change the table."""


def compact_and_print(arguments: Namespace) -> None:
    """Run the command. Raises NotAStoreError, VersionNotRetainedError, the errors of the store, and
    CompactionError."""
    url, settings = arguments.table, dict(arguments.conf)
    table = _opened(url, arguments.storage_options)
    metadata = table.metadata()
    if metadata is None:
        raise NotAStoreError(url)
    newest = table.newest()
    if newest is None:
        raise VersionNotRetainedError(url, None, None, None)
    with command_session(
        "cowstate compact", arguments.master, settings, shows_stages=True
    ) as spark:
        report = _compact(spark, arguments, table, newest, metadata.max_parallelism)
    print(json.dumps(report) if arguments.json else _TEXT.format(url=url, **report))


def _compact(
    spark: SparkSession,
    arguments: Namespace,
    table: TableStore,
    version: TableVersion,
    max_parallelism: int,
) -> dict[str, int]:
    """Fold the files of the version's state, and publish the new files. Return the report: number
    and bytes of the files before and after. Raises CompactionError."""
    url, storage_options = arguments.table, arguments.storage_options
    read = compacted(version, table.compactions())
    size = sum(file.length for file in read.state)
    parts = min(arguments.parts or 1 + size // _PART_BYTES, max_parallelism)

    def run(part: int) -> StateHandle:
        key_groups = key_group_range_of_subtask(max_parallelism, parts, part)
        opened = _opened(url, storage_options)
        opened.metadata()
        with opened.shown_alive(TableFileWriter(COMPACTED, read.version, part, 0)):
            return compact_key_groups(opened, read, key_groups, part)

    try:
        made = (
            spark.sparkContext.parallelize(range(parts), parts)
            .map(called_in_workers(run))
            .collect()
        )
    except PythonException as error:
        reason = str(error).strip().splitlines()[-1]
        raise CompactionError(f"{url} cannot be compacted: {reason}") from error
    files = tuple(file for file in made if file.rows)
    # The files in the version itself, not the files of an earlier compaction.
    replaced = tuple(file.name for file in version.state)
    table.publish_compaction(TableCompaction(version.version, replaced, files))
    return {
        "version": version.version,
        "filesBefore": len(read.state),
        "filesAfter": len(files),
        "bytesBefore": size,
        "bytesAfter": sum(file.length for file in files),
    }


def _opened(url: str, storage_options: Mapping[str, Any]) -> TableStore:
    return TableStore(RetryingObjectStore(open_object_store(url, storage_options)))
