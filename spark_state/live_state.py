"""Views that hold a state in the memory of a Python process, for look-ups by key, and follow the
state's store in a background thread.

`live_view(url)` loads the newest version; the thread applies later versions. Readers see whole
versions only, and never wait: a reader looks at an epoch of a copy-on-write map, see
spark_state.heap.state_map_epochs. The view needs pyarrow and the file system, but no Spark.

Cost in memory and processor time: O(1) for a look-up and for a snapshot, O(changes of the version)
for a new version (invariant I7 in ARCHITECTURE.md). See `StateReader.changes` for the requests to
the store. The view loads the whole state in these cases:

- at the start;
- retention has deleted versions that the view had not read yet;
- a version that the view had not read yet is damaged or lost;
- a query went back to an earlier epoch and replaced later epochs;
- columns were added or removed.
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
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.files.state_file import DELETE
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.state_reader import StateReader, open_store
from checkpoint_store.states.row_fold import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, PREIMAGE
from checkpoint_store.states.state_history import VersionInfo
from spark_state.errors import ConfigurationError
from spark_state.heap.state_map_epochs import StateMapEpoch, StateMapEpochs
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.row_columns import RowColumns, RowValue

if TYPE_CHECKING:
    import pandas as pd

CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
# Converting a batch holds the interpreter's lock for about a millisecond, and look-ups wait.
ROWS_PER_BATCH = 1024


def live_view(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    state: str | ProviderStore | None = None,
    poll_seconds: float = 1.0,
    retry_seconds: float = 10.0,
) -> LiveView:
    """Open a view of the state at `url`: a table, a state in a Python operator's store, or a
    provider's store in the checkpoint of a query.

    `storage_options`, `state`: as in `checkpoint_store.open_store`. `poll_seconds`: time between
    two looks at the store. `retry_seconds`: how long a failed call to the store is tried again.
    After this time the view's `error` reports the failure. `close` waits for the end of a running
    call, so `close` may take this time, too.

    Close the view, or use the view in a `with` statement. Raises the errors of the store if the
    store cannot be opened or has no version yet.
    """
    return LiveView(open_store(url, storage_options, state, retry_seconds), poll_seconds)


@dataclass(frozen=True, slots=True)
class _Shown:
    """One whole version, as readers see the state."""

    info: VersionInfo
    columns: RowColumns
    entries: StateMapEpoch[Key, RowValue]


class LiveSnapshot:
    """One whole version, unchanged until the snapshot is closed or dropped."""

    def __init__(self, shown: _Shown) -> None:
        self._shown: _Shown | None = shown

    @property
    def _open(self) -> _Shown:
        if self._shown is None:
            raise RuntimeError("the snapshot is closed; take another one from the view")
        return self._shown

    @property
    def version(self) -> int:
        """The number of the version; for the state of an operator, the epoch."""
        return self._open.info.version

    @property
    def timestamp(self) -> datetime.datetime:
        """The time when the version was committed, in UTC."""
        return datetime.datetime.fromtimestamp(self._open.info.timestamp_ms / 1000, datetime.UTC)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the values of a key as a dict by column name, without the key columns. Returns
        `default` if the key does not exist. `key`: the value of the key column; if there are
        several key columns, a tuple in their order, or a dict by name. Raises ConfigurationError
        for an invalid key."""
        shown = self._open
        state = shown.entries.get(shown.columns.to_key(key))
        return default if state is None else shown.columns.to_value(state)

    def __contains__(self, key: Any) -> bool:
        shown = self._open
        return shown.entries.get(shown.columns.to_key(key)) is not None

    def __len__(self) -> int:
        return len(self._open.entries)

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield (key, values) of every key, in any order. If there is one key column, a key is the
        column's value and no tuple."""
        shown = self._open
        single = len(shown.columns.keys.names) == 1
        for key, state in shown.entries:
            yield (key[0] if single else key), shown.columns.to_value(state)

    def to_arrow(self) -> pa.Table:
        """Return all rows, in any order, with the columns of the store."""
        columns, entries = self._open.columns, iter(self._open.entries)
        batches = []
        while rows := list(islice(entries, ROWS_PER_BATCH)):
            batches.append(columns.to_batch(rows))
        return pa.Table.from_batches(batches, columns.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows, in any order, with the columns of the store."""
        return self.to_arrow().to_pandas()

    def close(self) -> None:
        """Release the version. Safe to call again."""
        self._shown = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _FollowedState:
    """The state in memory, to which the view's thread applies changes. `shown`: the newest applied
    version."""

    def __init__(self, info: VersionInfo, columns: RowColumns, rows: pa.Table) -> None:
        batches = rows.to_batches(max_chunksize=ROWS_PER_BATCH)
        entries = (row for batch in batches for row in columns.rows(batch))
        self._columns = columns
        self._epochs: StateMapEpochs[Key, RowValue] = StateMapEpochs(info.version, entries)
        self.shown = _Shown(info, columns, self._epochs.newest)

    def apply(self, info: VersionInfo, changes: Mapping[Key, RowValue | None]) -> None:
        self._epochs.apply(info.version, changes)
        self.shown = _Shown(info, self._columns, self._epochs.newest)


class LiveView:
    """The newest version of a store's state, in memory. A background thread follows the store.

    Safe to use from several threads. Every call answers from one whole version; take a `snapshot`
    for several calls on the same version. If the thread cannot follow the store, for example
    because the store is unreachable, the view still answers from the last version, `error` has the
    reason, and the thread tries again.
    """

    def __init__(self, reader: StateReader, poll_seconds: float = 1.0) -> None:
        if not poll_seconds > 0:
            raise ConfigurationError(f"poll_seconds is {poll_seconds}; it must be greater than 0")
        self._reader = reader
        self._applying = threading.Lock()
        self._arrival = threading.Condition()
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._current_at = time.monotonic()
        self._state: _FollowedState | None = _load(reader, reader.info())
        self._shown: _Shown | None = self._state.shown
        self._thread = threading.Thread(
            target=_follow,
            args=(weakref.ref(self), self._stop, poll_seconds),
            name="cowstate-live-view",
            daemon=True,
        )
        self._thread.start()

    def snapshot(self) -> LiveSnapshot:
        """Return a snapshot of the current version, which stays the same while the view goes on.
        Takes O(1) and copies nothing."""
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
        """The time when the current version was committed, in UTC."""
        return self.snapshot().timestamp

    @property
    def error(self) -> Exception | None:
        """The reason why the last attempt to follow the store failed; None after a success."""
        return self._error

    @property
    def stale_seconds(self) -> float:
        """The number of seconds since the view was last known to show the store's newest
        version."""
        return time.monotonic() - self._current_at

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the values of a key, see LiveSnapshot.get. Never waits while a version is
        applied."""
        return self.snapshot().get(key, default)

    def __contains__(self, key: Any) -> bool:
        return key in self.snapshot()

    def __len__(self) -> int:
        return len(self.snapshot())

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield (key, values) of every key in one whole version, even if later versions arrive
        meanwhile. See LiveSnapshot."""
        return iter(self.snapshot())

    def refresh(self) -> None:
        """Show the store's newest version now. Raises the errors of the store."""
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
        # The shown version may be gone: deleted by retention, or replaced after a query went back.
        if state is not None and _is_there(self._reader, state.shown.info):
            changes = _read_changes(self._reader, state.shown, newest)
        # Dropped now: after an interrupt (Ctrl-C) in the middle of a change the state is unusable.
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
        """Wait until readers see `version` or a later version. Raises TimeoutError."""

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
        """End the thread, after the current request. Snapshots stay. Safe to call again."""
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
    """Refresh the view until the view is closed, or dropped without `close`."""
    while not stop.wait(poll_seconds):
        followed = view()
        if followed is None:
            return
        # The view's `error` has the exception; readers go on.
        with contextlib.suppress(Exception):
            followed.refresh()
        del followed


def _is_there(reader: StateReader, info: VersionInfo) -> bool:
    try:
        return reader.info(info.version) == info
    except VersionNotRetainedError:
        return False


def _load(reader: StateReader, newest: VersionInfo) -> _FollowedState:
    rows = reader.read(newest.version)
    return _FollowedState(newest, RowColumns.of(rows.schema, reader.key_names), rows)


def _read_changes(
    reader: StateReader, shown: _Shown, newest: VersionInfo
) -> dict[Key, RowValue | None] | None:
    """Return the changes from version `shown` to version `newest`: key -> new values, None for a
    deleted key. Return None instead if the whole state must be loaded."""
    try:
        rows = reader.changes(shown.info.version, newest.version, preimages=False)
    except (VersionNotRetainedError, CorruptObjectError, ObjectMissingError):
        return None
    # A query that went back replaces versions: then the rows may belong to other versions.
    if not (_is_there(reader, shown.info) and _is_there(reader, newest)):
        return None
    rows = rows.filter(pc.not_equal(rows.column(CHANGE_TYPE), pa.scalar(PREIMAGE)))
    if not shown.columns.schema.equals(rows.drop_columns(list(CHANGE_COLUMNS)).schema):
        return None
    changes: dict[Key, RowValue | None] = {}
    for batch in rows.to_batches(max_chunksize=ROWS_PER_BATCH):
        kinds = batch.column(CHANGE_TYPE).to_pylist()
        for (key, state), kind in zip(shown.columns.rows(batch), kinds, strict=True):
            changes[key] = None if kind == DELETE else state
    return changes
