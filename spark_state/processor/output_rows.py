"""Output rows of a processor: check the rows, convert to Arrow batches, keep the batches.

A row is a `Row` with the names of the output schema, in any order. Fields are matched by name, as
in Spark, but a missing, extra or ill-typed field is an error instead of a null.

Rows are sent only when the epoch is durable (I3), so the rows wait in a spool. The spool holds a
bounded number of bytes in memory, and all further bytes in a temporary file without a name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from spark_state.codecs.output_codecs import OUTPUT_FORMS
from spark_state.errors import OutputRowError, StateValueError
from spark_state.memory_share import MemoryShare, MemoryUse
from spark_state.serializers import StructSerializer
from spark_state.spill_file import telling_where

_LIMITS = "spark.cowstate.outputMemoryMB, and spark.cowstate.maxMemoryMB if it is set"

_fields_of = attrgetter("__fields__")


class OutputEncoder:
    """Encoder from rows to record batches. `schema`: Arrow, with the field names of the Spark
    schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = tuple(schema.names)
        self._serializer = StructSerializer(pa.struct(list(schema)), "output row", OUTPUT_FORMS)
        self._columns: list[list[Any]] = [[] for _ in schema]
        self.rows = 0

    def add(self, rows: Sequence[Any]) -> None:
        """Add rows to the next batch. Raises OutputRowError naming field, value and type."""
        columns = list(zip(*rows, strict=True)) if self._have_names(rows) else []
        if not self._serializer.is_canonical(columns):
            columns = list(zip(*map(self._checked, rows), strict=True))
        for column, added in zip(self._columns, columns, strict=True):
            column.extend(added)
        self.rows += len(rows)

    def batch(self) -> pa.RecordBatch:
        """Return the rows added since the last batch. Raises OutputRowError."""
        columns, self._columns = self._columns, [[] for _ in self._schema]
        self.rows = 0
        try:
            arrays = self._serializer.arrays(columns)
        except StateValueError as error:
            raise OutputRowError(str(error)) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _have_names(self, rows: Sequence[Any]) -> bool:
        """Return True if all rows are Rows with the schema's fields in the schema's order. The
        check runs no Python code for each row."""
        if set(map(type, rows)) != {Row} or set(map(len, rows)) != {len(self._names)}:
            return False
        try:
            fields = [*map(_fields_of, rows)]
        except AttributeError:  # a Row without field names
            return False
        # Row(n=1) has a list of names, and Row("n")(1) has Row("n"), which equals a tuple.
        return fields.count([*self._names]) + fields.count(self._names) == len(rows)

    def _checked(self, row: Any) -> tuple[Any, ...]:
        fields = getattr(row, "__fields__", None)
        if type(row) is not Row or fields is None or tuple(fields) != self._names:
            row = self._in_order(row)
        try:
            return self._serializer.to_state(tuple(row))
        except StateValueError as error:
            raise OutputRowError(f"{error}, in {row!r}") from error

    def _in_order(self, row: Any) -> tuple[Any, ...]:
        if not isinstance(row, Row) or not hasattr(row, "__fields__"):
            raise OutputRowError(
                f"a processor yields Row({', '.join(f'{n}=…' for n in self._names)}), "
                f"got {row!r} of type {type(row).__name__}"
            )
        fields = tuple(row.__fields__)  # a Row looks up a name as an attribute, which is slow
        missing = [name for name in self._names if name not in fields]
        extra = [name for name in fields if name not in self._names]
        if missing or extra:
            raise OutputRowError(
                f"output row {row!r} does not match the output schema: "
                f"missing fields {missing}, unknown fields {extra}"
            )
        return tuple(row[fields.index(name)] for name in self._names)


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Place where output waits until it is sent. `memory`: counts this output's bytes in memory,
    and limits the bytes of several outputs together. `folder`: directory for output beyond the
    limit; None for the temporary directory."""

    memory: MemoryShare
    folder: str | None = None

    @classmethod
    def unlimited(cls) -> OutputPlace:
        """Return a place without a limit, shared with no other output."""
        return cls(MemoryShare(MemoryUse(), None))


class OutputSpool:
    """Record batches in order, at most `memory_bytes` in memory and no more than `place` allows; a
    temporary file holds all further batches. Close after use. Raises StateHostError if the disk
    refuses bytes."""

    def __init__(self, schema: pa.Schema, memory_bytes: int, place: OutputPlace) -> None:
        self._folder = place.folder or tempfile.gettempdir()
        self._memory = place.memory
        self._memory_bytes = memory_bytes
        self._is_on_disk = False
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by close
            max_size=memory_bytes, prefix="cowstate-", dir=place.folder
        )
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema)
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        with telling_where("the output", _LIMITS, self._folder):
            if not self._is_on_disk and not self._memory.take(batch.nbytes):
                self._leave_memory()
            self._writer.write_batch(batch)
            if not self._is_on_disk and self._file.tell() > self._memory_bytes:
                self._leave_memory()
        self.rows += batch.num_rows

    def _leave_memory(self) -> None:
        self._file.rollover()
        self._memory.give_back()
        self._is_on_disk = True

    def finish(self) -> None:
        """Write the remaining bytes. No batch can be appended afterwards."""
        with telling_where("the output", _LIMITS, self._folder):
            self._writer.close()
            self._file.flush()

    @property
    def bytes(self) -> int:
        """The number of bytes so far, in memory and on disk."""
        return self._file.tell()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches. No batch can be appended afterwards."""
        self.finish()
        self._file.seek(0)
        yield from pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"))

    def close(self) -> None:
        self._memory.give_back()
        with suppress(OSError):  # append has already reported refused bytes
            self._file.close()

    def __enter__(self) -> OutputSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
