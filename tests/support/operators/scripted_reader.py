"""A store that a test writes epoch by epoch, for a live view to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from checkpoint_store.errors import StoreUnavailableError, VersionNotRetainedError
from checkpoint_store.files.state_file import DELETE
from checkpoint_store.states.row_fold import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
)
from checkpoint_store.states.state_history import VersionInfo

Row = tuple[Any, ...]
Rows = Mapping[Row, Row]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True)
class Epoch:
    """The whole state of an epoch: key -> other values. Key columns come first in the schema."""

    info: VersionInfo
    schema: pa.Schema
    rows: Rows


@dataclass
class ScriptedReader:
    """A VersionReader of the committed epochs. `before` runs before each answer and gets the
    method's name."""

    schema: pa.Schema
    key_names: tuple[str, ...] = ("id",)
    url: str = "script://store"
    before: Callable[[str], None] = lambda call: None
    calls: list[str] = field(default_factory=list)
    committed: dict[VersionInfo, Epoch] = field(default_factory=dict)
    _retained: list[Epoch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clock_ms: int = 1_700_000_000_000

    def commit(self, version: int, rows: Rows) -> VersionInfo:
        """Commit an epoch and drop epochs from `version` on, as a query does that goes back."""
        with self._lock:
            self._clock_ms += 1000
            info = VersionInfo(version, self._clock_ms)
            epoch = self.committed[info] = Epoch(info, self.schema, dict(rows))
            self._retained = [e for e in self._retained if e.info.version < version] + [epoch]
        return info

    def retain(self, epochs: int) -> None:
        """Delete all but the newest `epochs` epochs."""
        with self._lock:
            self._retained = self._retained[-epochs:] if epochs else []

    def info(self, epoch: int | None = None) -> VersionInfo:
        self._called("info")
        with self._lock:
            retained = list(self._retained)
        if not retained:
            raise VersionNotRetainedError(self.url, None, None, None)
        return retained[-1].info if epoch is None else self._at(epoch).info

    def read(self, epoch: int) -> pa.Table:
        self._called("read")
        state = self._at(epoch)
        return _table(state.schema, [key + row for key, row in state.rows.items()])

    def changes(self, start: int, end: int, *, preimages: bool) -> pa.Table:
        """Changes with preimages even if the caller wants none, as from a state with a sequence."""
        self._called("changes")
        with self._lock:
            epochs = [e for e in self._retained if start <= e.info.version <= end]
        before, last = self._at(start), self._at(end)
        changes: list[Row] = []
        for epoch in epochs[1:]:
            time = pa.scalar(epoch.info.timestamp_ms * 1000, pa.timestamp("us", "UTC")).as_py()
            for row, kind in _changed(before.rows, epoch.rows):
                padding = (None,) * (len(last.schema) - len(row))
                changes.append((*row, *padding, kind, epoch.info.version, time))
            before = epoch
        return _table(_with_change_columns(last.schema), changes)

    def _at(self, version: int) -> Epoch:
        for epoch in self._retained:
            if epoch.info.version == version:
                return epoch
        raise VersionNotRetainedError(self.url, version, None, None)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)


def _changed(before: Rows, after: Rows) -> list[tuple[Row, str]]:
    """The changed rows and their change types. Postimages come before preimages, which readers do
    not expect, because only versions are ordered."""
    changes = [(key + row, DELETE) for key, row in before.items() if key not in after]
    for key, row in after.items():
        if key not in before:
            changes.append((key + row, INSERT))
        elif before[key] != row:
            changes += [(key + row, POSTIMAGE), (key + before[key], PREIMAGE)]
    return changes


def _with_change_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            *schema,
            pa.field(CHANGE_TYPE, pa.string()),
            pa.field(COMMIT_VERSION, pa.int64()),
            pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
        ]
    )


def _table(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def rows(*ids: int, count: int = 0) -> dict[Row, Row]:
    """Rows of SCHEMA with these keys."""
    return {(key,): (f"n{key}", count) for key in ids}


def value(key: int, count: int = 0) -> dict[str, object]:
    """The values that a view shows for a key of `rows`."""
    return {"name": f"n{key}", "count": count}


def reader_of(version: int, state: Rows) -> ScriptedReader:
    """A reader of one epoch."""
    reader = ScriptedReader(SCHEMA)
    reader.commit(version, state)
    return reader


def unavailable(call: str) -> None:
    """A `before` for a store that does not answer."""
    raise StoreUnavailableError("script://store", call, 5, "TimeoutError: no answer")
