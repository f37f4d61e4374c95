"""Cowstate's data source over an object store that refuses some calls of a commit.

A file beside the table, `<table>.refuses`, names the refused calls. The file may appear and
disappear while queries run:

    deletes         the writer may not delete
    listings        upkeep, which runs beside the commit, cannot list anything
    folded files    the disk is full when files are folded
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark import cloudpickle
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from datasources.cowstate_source import CowStateDataSource
from datasources.sink import opened_tables, table_upkeep
from datasources.sink.table_rows import SinkPlan
from datasources.sink.table_sink import TableStreamWriter
from tests.support.stores.fake_object_store import RefusingObjectStore

REFUSALS = ("deletes", "listings", "folded files")


class Refusals:
    """The calls refused at present, for upkeep or for the commit itself."""

    def __init__(self, table: str, *, of_upkeep: bool) -> None:
        self._said = Path(f"{table}.refuses")
        self._of_upkeep = of_upkeep

    def __call__(self, operation: str, name: str) -> Exception | None:
        said = self._said.read_text() if self._said.exists() else ""
        if said == "deletes" and operation == "delete":
            return StoreAccessError(name, "[Errno 13] Permission denied")
        if said == "listings" and operation == "list" and self._of_upkeep:
            return OSError(errno.EIO, "the store does not answer")
        if said == "folded files" and operation == "put" and name.startswith("data/compacted/"):
            return OSError(errno.ENOSPC, "No space left on device")
        return None


class RefusedWriter(TableStreamWriter):
    """A sink whose commits meet refusals."""

    def __init__(self, plan: SinkPlan) -> None:
        super().__init__(plan)
        self._url = plan.options.url

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        def refusing(*, of_upkeep: bool) -> Callable[..., ObjectStore]:
            refusals = Refusals(self._url, of_upkeep=of_upkeep)
            return lambda *asked: RefusingObjectStore(open_object_store(*asked), refusals)

        with (
            patch.object(opened_tables, "open_object_store", refusing(of_upkeep=False)),
            # The process keeps the opened store of upkeep from batch to batch.
            patch.object(table_upkeep, "open_object_store", refusing(of_upkeep=True)),
            # With the normal retry time, every commit would retry the refused calls for long.
            patch.object(table_upkeep, "_RETRY_SECONDS", 0.3),
        ):
            super().commit(messages, batchId)


class RefusingDataSource(CowStateDataSource):
    """The data source with RefusedWriter as its sink."""

    @classmethod
    def name(cls) -> str:
        return "refusing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> RefusedWriter:  # noqa: N802
        writer: Any = super().streamWriter(schema, overwrite)
        plan: SinkPlan = writer._plan
        return RefusedWriter(plan)


cloudpickle.register_pickle_by_value(sys.modules[__name__])
