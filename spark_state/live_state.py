"""A state in memory, whoever writes it: looked up by key while it follows its store.

`live_view(url)` loads the newest version and applies later ones in a background thread. Readers see
whole versions only, and wait for none: what they look at is an epoch of a copy-on-write map, see
spark_state.heap.state_map_epochs. It takes pyarrow and the file system, no Spark.

Cost in memory and processor: a lookup takes O(1), a version O(its changes), a snapshot nothing
(I7); `StateReader.changes` decides what is asked of the store. All of the state is loaded anew at
the start, when retention was faster than the view, when a version in between is damaged or lost,
when a query went back to an earlier epoch and replaced later ones, and when columns come or go.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.state_file import DELETE
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.state_reader import open_store
from checkpoint_store.states.row_fold import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, PREIMAGE
from checkpoint_store.states.state_history import VersionInfo
from spark_state.errors import ConfigurationError
from spark_state.heap.state_map_epochs import StateMapEpoch, StateMapEpochs
from spark_state.keyed_state.row_columns import Key, RowColumns, State

if TYPE_CHECKING:
    import pandas as pd

CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
# Converting a batch holds the interpreter's lock, for which lookups wait: a millisecond or so.
ROWS_PER_BATCH = 1024


class VersionReader(Protocol):
    """What a view needs of a StateReader. Used by one thread at a time."""

    @property
    def url(self) -> str:
        """The store's URL, for messages."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns, in order."""

    def info(self, version: int | None = None) -> VersionInfo:
        """A version that can be read now; None means the newest."""

    def read(self, version: int) -> pa.Table:
        """The state at a version."""

    def changes(self, start: int, end: int, *, preimages: bool) -> pa.Table:
        """What the versions after `start` up to `end` changed, in order, and CHANGE_COLUMNS."""


def live_view(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    state: str | ProviderStore | None = None,
    poll_seconds: float = 1.0,
    retry_seconds: float = 10.0,
) -> LiveView:
    """A view of what is at `url`: a table, a state of the Python operator whose store it is, or a
    store of the query on the provider whose checkpoint it is.

    `state`: as of `checkpoint_store.open_store`. A call to the store that fails is tried again for
    `retry_seconds`; only then does `error` say so, and `close` may wait for it. Close the view, or
    use it in a `with` statement. Raises the errors of the store when it cannot be opened or has no
    version yet.
    """
    return LiveView(open_store(url, storage_options, state, retry_seconds), poll_seconds)


@dataclass(frozen=True, slots=True)
class _Shown:
    """One whole version as readers see it."""

    info: VersionInfo
    columns: RowColumns
    entries: StateMapEpoch[Key, State]


class LiveSnapshot:
    """One whole version, which stays what it is until the snapshot is closed or dropped."""

    def __init__(self, shown: _Shown) -> None:
        self._shown: _Shown | None = shown

    @property
    def _open(self) -> _Shown:
        if self._shown is None:
            raise RuntimeError("the snapshot is closed; take another one from the view")
        return self._shown

    @property
    def version(self) -> int:
        """The number of the version; for the state of an operator, of its epoch."""
        return self._open.info.version

    @property
    def timestamp(self) -> datetime.datetime:
        """When the version was committed, in UTC."""
        return datetime.datetime.fromtimestamp(self._open.info.timestamp_ms / 1000, datetime.UTC)

    def get(self, key: Any, default: Any = None) -> Any:
        """The values of the other columns, by name, of a key; `default` if there is none.

        `key`: the value of the key column, or, if there are several, a tuple of them in order or a
        dict of them by name. Raises ConfigurationError for what can be no key.
        """
        shown = self._open
        state = shown.entries.get(shown.columns.to_key(key))
        return default if state is None else shown.columns.to_value(state)

    def __contains__(self, key: Any) -> bool:
        shown = self._open
        return shown.entries.get(shown.columns.to_key(key)) is not None

    def __len__(self) -> int:
        return len(self._open.entries)

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(key, values) of every key in any order; a key of one column is its value, no tuple."""
        shown = self._open
        single = len(shown.columns.keys.names) == 1
        for key, state in shown.entries:
            yield (key[0] if single else key), shown.columns.to_value(state)

    def to_arrow(self) -> pa.Table:
        """All rows, in any order, with the columns of the store."""
        columns, entries = self._open.columns, iter(self._open.entries)
        batches = []
        while rows := list(islice(entries, ROWS_PER_BATCH)):
            batches.append(columns.to_batch(rows))
        return pa.Table.from_batches(batches, columns.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows, in any order, with the columns of the store."""
        return self.to_arrow().to_pandas()

    def close(self) -> None:
        """Let go of the version. Safe to call again."""
        self._shown = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Followed:
    """The state as it was last read, which changes are applied to."""

    def __init__(self, info: VersionInfo, columns: RowColumns, rows: pa.Table) -> None:
        batches = rows.to_batches(max_chunksize=ROWS_PER_BATCH)
        entries = (row for batch in batches for row in columns.rows(batch))
        self._columns = columns
        self._epochs: StateMapEpochs[Key, State] = StateMapEpochs(info.version, entries)
        self.shown = _Shown(info, columns, self._epochs.newest)

    def apply(self, info: VersionInfo, changes: Mapping[Key, State | None]) -> None:
        self._epochs.apply(info.version, changes)
        self.shown = _Shown(info, self._columns, self._epochs.newest)


class LiveView:
    """The newest version of a store that a background thread follows.

    Safe to use from several threads. Every call answers from one whole version; for several calls
    to answer from the same one, take a `snapshot`. When the thread fails, because the store cannot
    be reached, say, the view goes on answering with the last version, `error` says why, and the
    thread goes on trying.
    """

    def __init__(self, reader: VersionReader, poll_seconds: float = 1.0) -> None:
        if not poll_seconds > 0:
            raise ConfigurationError(f"poll_seconds is {poll_seconds}; it must be greater than 0")
        self._reader = reader
        self._applying = threading.Lock()
        self._arrival = threading.Condition()
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._current_at = time.monotonic()
        self._state: _Followed | None = _load(reader, reader.info())
        self._shown: _Shown | None = self._state.shown
        self._thread = threading.Thread(
            target=_follow,
            args=(weakref.ref(self), self._stop, poll_seconds),
            name="cowstate-live-view",
            daemon=True,
        )
        self._thread.start()

    def snapshot(self) -> LiveSnapshot:
        """The version of this moment, kept while the view goes on. Takes O(1), copies nothing."""
        shown = self._shown
        if shown is None:
            raise self._closed()
        return LiveSnapshot(shown)

    @property
    def version(self) -> int:
        """The version that readers see now."""
        return self.snapshot().version

    @property
    def timestamp(self) -> datetime.datetime:
        """When that version was committed, in UTC."""
        return self.snapshot().timestamp

    @property
    def error(self) -> Exception | None:
        """Why the last attempt to follow the store failed; None when it did not."""
        return self._error

    @property
    def stale_seconds(self) -> float:
        """The time since the view was last known to show the store's newest version."""
        return time.monotonic() - self._current_at

    def get(self, key: Any, default: Any = None) -> Any:
        """See LiveSnapshot.get. Never waits for a version that is being applied."""
        return self.snapshot().get(key, default)

    def __contains__(self, key: Any) -> bool:
        return key in self.snapshot()

    def __len__(self) -> int:
        return len(self.snapshot())

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """See LiveSnapshot: all of one version, even when others arrive meanwhile."""
        return iter(self.snapshot())

    def refresh(self) -> None:
        """Show what is newest in the store now. Raises what the store raises."""
        with self._applying:
            if self._stop.is_set():
                raise self._closed()
            began = time.monotonic()
            try:
                self._catch_up()
            except Exception as error:
                self._error = error
                raise
            self._error, self._current_at = None, began

    def _catch_up(self) -> None:
        state, newest = self._state, self._reader.info()
        if state is not None and state.shown.info == newest:
            return
        changes = None
        # Not there: deleted by retention, or replaced by a query that went back.
        if state is not None and _is_there(self._reader, state.shown.info):
            changes = _read_changes(self._reader, state.shown, newest)
        # A state that was changed half way (Ctrl-C) is not used again.
        self._state = None
        if state is None or changes is None:
            state = _load(self._reader, newest)
        else:
            state.apply(newest, changes)
        self._state = state
        with self._arrival:
            self._shown = state.shown
            self._arrival.notify_all()

    def wait_for(self, version: int, timeout_seconds: float | None = None) -> None:
        """Wait until readers see `version` or a later one. Raises TimeoutError."""

        def arrived() -> bool:
            return self._stop.is_set() or self.version >= version

        with self._arrival:
            in_time = self._arrival.wait_for(arrived, timeout_seconds)
        if self._stop.is_set():
            raise self._closed()
        if not in_time:
            why = f"; the last attempt to follow the store failed: {self._error}"
            raise TimeoutError(
                f"version {version} did not come within {timeout_seconds} s, the newest is "
                f"{self.version}{why if self._error else ''}"
            )

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"the view of {self._reader.url} is closed; open another one")

    def close(self) -> None:
        """End the thread, after a request that is under way. Snapshots stay. Safe to call again."""
        self._stop.set()
        with self._arrival:
            self._arrival.notify_all()
        self._thread.join()
        with self._applying:
            self._state = self._shown = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _follow(view: weakref.ref[LiveView], stop: threading.Event, poll_seconds: float) -> None:
    """Refresh the view until it is closed, or dropped without being closed."""
    while not stop.wait(poll_seconds):
        followed = view()
        if followed is None:
            return
        # `error` has it, for whoever asks; readers go on.
        with contextlib.suppress(Exception):
            followed.refresh()
        del followed


def _is_there(reader: VersionReader, info: VersionInfo) -> bool:
    try:
        return reader.info(info.version) == info
    except VersionNotRetainedError:
        return False


def _load(reader: VersionReader, newest: VersionInfo) -> _Followed:
    rows = reader.read(newest.version)
    return _Followed(newest, RowColumns.of(rows.schema, reader.key_names), rows)


def _read_changes(
    reader: VersionReader, shown: _Shown, newest: VersionInfo
) -> dict[Key, State | None] | None:
    """What the versions after the one shown make of keys; None if the state has to be loaded."""
    try:
        rows = reader.changes(shown.info.version, newest.version, preimages=False)
    except (VersionNotRetainedError, CorruptObjectError, ObjectMissingError):
        return None
    # A query that went back replaces versions: these rows may then lead from and to other ones.
    if not (_is_there(reader, shown.info) and _is_there(reader, newest)):
        return None
    rows = rows.filter(pc.not_equal(rows.column(CHANGE_TYPE), pa.scalar(PREIMAGE)))
    if not shown.columns.holds(rows.drop_columns(list(CHANGE_COLUMNS)).schema):
        return None
    changes: dict[Key, State | None] = {}
    for batch in rows.to_batches(max_chunksize=ROWS_PER_BATCH):
        kinds = batch.column(CHANGE_TYPE).to_pylist()
        for (key, state), kind in zip(shown.columns.rows(batch), kinds, strict=True):
            changes[key] = None if kind == DELETE else state
    return changes
