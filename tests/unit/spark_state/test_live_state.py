"""A live view shows the newest epoch, and survives a store that does not answer.

Except in the tests of the thread, views poll once in ten minutes, so a test decides by `refresh`
when a view looks.
"""

from __future__ import annotations

import datetime
import gc
import math
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from checkpoint_store.errors import (
    NotAStoreError,
    StoreUnavailableError,
    VersionNotRetainedError,
)
from spark_state.errors import ConfigurationError
from spark_state.live_state import ROWS_PER_BATCH, LiveView, live_view
from tests.support.eventually import PATIENCE_SECONDS, eventually
from tests.support.operators.scripted_reader import (
    SCHEMA,
    Rows,
    ScriptedReader,
    reader_of,
    rows,
    unavailable,
    value,
)

NEVER, OFTEN = 600.0, 0.005


@contextmanager
def following(
    version: int, state: Rows, poll_seconds: float = NEVER
) -> Iterator[tuple[ScriptedReader, LiveView]]:
    reader = reader_of(version, state)
    with LiveView(reader, poll_seconds) as view:
        reader.calls.clear()
        yield reader, view


def view_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "cowstate-live-view"]


def test_a_view_begins_with_the_newest_epoch() -> None:
    with following(7, rows(1, 2)) as (reader, view):
        assert (view.version, len(view), view.error) == (7, 2, None)
        assert view.timestamp == datetime.datetime.fromtimestamp(
            reader.info().timestamp_ms / 1000, datetime.UTC
        )
        assert (view.get(1), view.get(3), view.get(3, "none")) == (value(1), None, "none")
        assert (1 in view, 3 in view) == (True, False)
        assert dict(view) == {1: value(1), 2: value(2)}


def test_a_refresh_applies_inserts_updates_and_deletes() -> None:
    with following(1, rows(1, 2, 3)) as (reader, view):
        reader.commit(2, {**rows(1), **rows(2, 4, count=9)})
        assert (view.version, view.get(2)) == (1, value(2))
        view.refresh()
        assert (view.version, len(view)) == (2, 3)
        assert dict(view) == {1: value(1), 2: value(2, 9), 4: value(4, 9)}
        assert "read" not in reader.calls, "what did not change is not read again"


def test_several_epochs_are_applied_at_once_and_their_last_word_counts() -> None:
    with following(1, rows(1, 2)) as (reader, view):
        reader.commit(2, rows(2, 3))
        reader.commit(3, rows(1, 2, count=3))
        reader.commit(6, rows(1, 5, count=6))
        view.refresh()
        assert (view.version, dict(view)) == (6, {1: value(1, 6), 5: value(5, 6)})
        assert reader.calls.count("changes") == 1


def test_a_refresh_without_a_new_epoch_only_lists() -> None:
    with following(1, rows(1)) as (reader, view):
        view.refresh()
        assert reader.calls == ["info"]


def test_an_epoch_of_more_rows_than_a_batch_is_whole() -> None:
    many = range(2 * ROWS_PER_BATCH + 10)
    with following(1, rows(*many)) as (reader, view):
        reader.commit(2, {**rows(*many[::2], count=2), **rows(-1)})
        view.refresh()
        assert dict(view) == {-1: value(-1), **{key: value(key, 2) for key in many[::2]}}
        assert view.snapshot().to_arrow().num_rows == len(view)


def test_a_view_is_answered_while_the_store_is_read() -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(call: str) -> None:
        if call == "changes":
            asked.set()
            assert answer.wait(PATIENCE_SECONDS)

    with following(1, rows(1), OFTEN) as (reader, view):
        reader.before = wait
        reader.commit(2, rows(1, count=2))
        assert asked.wait(PATIENCE_SECONDS)
        assert (view.version, view.get(1), dict(view)) == (1, value(1), {1: value(1)})
        answer.set()
        view.wait_for(2, PATIENCE_SECONDS)
        assert view.get(1) == value(1, 2)


def test_a_snapshot_stays_at_its_epoch_until_it_is_closed() -> None:
    with following(1, rows(1, 2)) as (reader, view):
        with view.snapshot() as snapshot:
            reader.commit(2, rows(2, 3, count=2))
            view.refresh()
            assert (snapshot.version, view.version) == (1, 2)
            assert (snapshot.get(1), snapshot.get(3), 3 in snapshot) == (value(1), None, False)
            assert (len(snapshot), dict(snapshot)) == (2, {1: value(1), 2: value(2)})
            assert snapshot.timestamp < view.timestamp
        with pytest.raises(RuntimeError, match="the snapshot is closed; take another one"):
            snapshot.get(1)


def test_iterating_a_view_is_of_one_epoch_whatever_comes_meanwhile() -> None:
    with following(1, rows(*range(100))) as (reader, view):
        entries = iter(view)
        reader.commit(2, rows(*range(200), count=2))
        view.refresh()
        first = [next(entries) for _ in range(10)]
        reader.commit(3, {})
        view.refresh()
        assert dict([*first, *entries]) == {key: value(key) for key in range(100)}


def test_a_snapshot_outlives_its_view() -> None:
    with following(1, rows(1)) as (_, view):
        snapshot = view.snapshot()
    assert snapshot.get(1) == value(1)
    snapshot.close()
    snapshot.close()


def test_a_snapshot_becomes_a_table_with_the_columns_of_the_store() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("m", MAP)])
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    reader = ScriptedReader(schema)
    reader.commit(1, {(1,): (noon, [("a", 1)]), (2,): (None, None)})
    with LiveView(reader, NEVER) as view:
        table = view.snapshot().to_arrow().sort_by("id")
        assert table.equals(reader.read(1))
        assert list(view.snapshot().to_pandas().columns) == ["id", "at", "m"]
        reader.commit(2, {})
        view.refresh()
        assert view.snapshot().to_arrow().equals(schema.empty_table())


MAP = pa.map_(pa.string(), pa.int64())


def test_values_that_cannot_be_hashed_belong_to_the_caller() -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    reader = ScriptedReader(schema)
    reader.commit(1, {(1,): (["a"],)})
    with LiveView(reader, NEVER) as view:
        view.get(1)["tags"].append("mine")
        assert view.get(1) == {"tags": ["a"]}
        next(iter(view))[1]["tags"].clear()
        reader.commit(2, {(1,): (["a", "b"],), (2,): ([],)})
        view.refresh()
        assert dict(view) == {1: {"tags": ["a", "b"]}, 2: {"tags": []}}


def test_a_key_of_several_columns_is_a_tuple_or_a_dict() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
    reader = ScriptedReader(schema, key_names=("a", "b"))
    reader.commit(1, {(1, "x"): (10,), (1, None): (11,)})
    with LiveView(reader, NEVER) as view:
        assert view.get((1, "x")) == view.get({"b": "x", "a": 1}) == {"n": 10}
        assert dict(view) == {(1, "x"): {"n": 10}, (1, None): {"n": 11}}
        with pytest.raises(ConfigurationError, match=r"1 is no key: the key columns are a, b"):
            view.get(1)
        with pytest.raises(ConfigurationError, match="'1' is no value of the key column 'a'"):
            assert ("1", "x") in view


def test_nan_is_a_key_that_is_found_changed_and_removed() -> None:
    reader = ScriptedReader(pa.schema([("x", pa.float64()), ("n", pa.int64())]), ("x",))
    reader.commit(1, {(math.nan,): (1,), (0.0,): (2,)})
    with LiveView(reader, NEVER) as view:
        assert (view.get(float("nan")), view.get(-0.0)) == ({"n": 1}, {"n": 2})
        reader.commit(2, {(math.nan,): (5,), (0.0,): (2,)})
        view.refresh()
        assert (view.get(float("nan")), len(view)) == ({"n": 5}, 2)
        reader.commit(3, {(0.0,): (2,)})
        view.refresh()
        assert (view.get(float("nan")), len(view)) == (None, 1)


def test_a_store_without_an_epoch_is_refused() -> None:
    with pytest.raises(VersionNotRetainedError, match="script://store holds no version yet"):
        LiveView(ScriptedReader(SCHEMA))
    assert view_threads() == []


@pytest.mark.parametrize("poll_seconds", [0.0, -1.0, math.nan])
def test_a_wait_between_polls_that_is_none_is_refused(poll_seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=f"poll_seconds is {poll_seconds}"):
        LiveView(reader_of(1, {}), poll_seconds)


def test_readers_go_on_while_the_store_fails_and_the_thread_tries_again() -> None:
    with following(1, rows(1), OFTEN) as (reader, view):
        reader.before = unavailable
        eventually(lambda: view.error is not None)
        assert isinstance(view.error, StoreUnavailableError)
        assert (view.version, view.get(1), dict(view)) == (1, value(1), {1: value(1)})
        reader.commit(2, rows(1, count=2))
        reader.calls.clear()
        eventually(lambda: len(reader.calls) > 2)
        assert view.version == 1
        reader.before = lambda call: None
        view.wait_for(2, PATIENCE_SECONDS)
        eventually(lambda: view.error is None)
        assert view.get(1) == value(1, 2)


def test_a_refresh_raises_what_the_store_raises_and_error_keeps_it() -> None:
    with following(1, rows(1)) as (reader, view):
        reader.before = unavailable
        with pytest.raises(StoreUnavailableError) as raised:
            view.refresh()
        assert view.error is raised.value
        assert view.get(1) == value(1)
        reader.before = lambda call: None
        view.refresh()
        assert view.error is None


def test_a_store_that_was_emptied_leaves_the_last_epoch_and_says_why() -> None:
    with following(1, rows(1)) as (reader, view):
        reader.retain(0)
        with pytest.raises(VersionNotRetainedError):
            view.refresh()
        assert (view.version, view.get(1)) == (1, value(1))


def test_staleness_is_the_time_since_the_newest_epoch_was_shown() -> None:
    with following(1, rows(1)) as (reader, view):
        reader.before = unavailable
        time.sleep(0.05)
        with pytest.raises(StoreUnavailableError):
            view.refresh()
        assert view.stale_seconds >= 0.05
        reader.before = lambda call: None
        before = time.monotonic()
        view.refresh()
        assert view.stale_seconds <= time.monotonic() - before


def test_a_view_that_fell_behind_the_retention_loads_anew() -> None:
    with following(1, rows(1, 2)) as (reader, view):
        with view.snapshot() as old:
            for epoch in range(2, 9):
                reader.commit(epoch, rows(2, epoch, count=epoch))
            reader.retain(3)
            view.refresh()
            assert reader.calls == ["info", "info", "read"]
            assert (view.version, dict(view)) == (8, {2: value(2, 8), 8: value(8, 8)})
            assert dict(old) == {1: value(1), 2: value(2)}
        reader.commit(9, rows(8, count=9))
        view.refresh()
        assert (reader.calls.count("changes"), dict(view)) == (1, {8: value(8, 9)})


def test_an_epoch_deleted_while_its_changes_are_asked_for_is_not_needed() -> None:
    with following(1, rows(1)) as (reader, view):
        reader.before = lambda call: reader.retain(1) if call == "changes" else None
        reader.commit(2, rows(2))
        view.refresh()
        assert (view.version, dict(view)) == (2, {2: value(2)})


@pytest.mark.parametrize("back_to", [3, 5, 6])
def test_epochs_that_a_query_replaced_are_not_built_upon(back_to: int) -> None:
    with following(2, rows(1, 2)) as (reader, view):
        for epoch in (3, 4, 5):
            reader.commit(epoch, rows(epoch))
        view.refresh()
        reader.commit(back_to, rows(7, count=back_to))
        view.refresh()
        assert (view.version, dict(view)) == (back_to, {7: value(7, back_to)})


@pytest.mark.parametrize("replaced", [1, 2])
def test_epochs_replaced_while_their_changes_are_read_are_loaded_anew(replaced: int) -> None:
    with following(1, rows(1)) as (reader, view):
        reader.commit(2, rows(1, 2))

        def go_back(call: str) -> None:
            if call == "changes":
                reader.before = lambda call: None
                reader.commit(replaced, rows(9))
                reader.commit(2, rows(9, 10))

        reader.before = go_back
        view.refresh()
        view.refresh()
        assert (view.version, dict(view)) == (2, {9: value(9), 10: value(10)})


def test_columns_that_come_are_there_with_the_epoch_that_has_them() -> None:
    with following(1, rows(1)) as (reader, view), view.snapshot() as old:
        reader.schema = SCHEMA.append(pa.field("extra", pa.bool_()))
        reader.commit(2, {(1,): ("n1", 0, True), (2,): ("n2", 0, None)})
        view.refresh()
        assert view.get(1) == {**value(1), "extra": True}
        assert (old.get(1), old.to_arrow().column_names) == (value(1), SCHEMA.names)


class Interrupt(BaseException):
    """An interrupt like Ctrl-C, which pytest does not catch."""


def test_an_interrupted_apply_is_not_built_upon() -> None:
    with following(1, rows(1, 2)) as (reader, view):
        reader.commit(2, rows(1, 2, 3, count=2))
        state = view._state
        assert state is not None
        put = state._epochs._map.put
        left = [None] * 2

        def interrupted(*arguments: object) -> None:
            if not left:
                raise Interrupt
            left.pop()
            put(*arguments)  # type: ignore[arg-type]

        state._epochs._map.put = interrupted  # type: ignore[method-assign, assignment]
        with pytest.raises(Interrupt):
            view.refresh()
        assert (view.version, dict(view)) == (1, {1: value(1), 2: value(2)})
        reader.commit(2, rows(5))
        view.refresh()
        assert (view.version, dict(view)) == (2, {5: value(5)})


def test_waiting_for_a_version_that_is_there_returns_at_once() -> None:
    with following(5, rows(1)) as (_, view), view.snapshot() as snapshot:
        view.wait_for(4)
        view.wait_for(5)
        assert view.version == snapshot.version == 5


def test_waiting_in_vain_says_what_is_there_and_why() -> None:
    with following(5, rows(1)) as (reader, view):
        with pytest.raises(TimeoutError, match=r"version 6 .* within 0.01 s, the newest is 5$"):
            view.wait_for(6, 0.01)
        reader.before = unavailable
        with pytest.raises(StoreUnavailableError):
            view.refresh()
        with pytest.raises(TimeoutError, match=r"the newest is 5; the last .* unavailable: info"):
            view.wait_for(6, 0.01)


def test_a_closed_view_has_no_thread_and_answers_nothing() -> None:
    reader = reader_of(1, rows(1))
    view = LiveView(reader, OFTEN)
    assert len(view_threads()) == 1
    view.close()
    view.close()
    assert view_threads() == []
    uses: list[Callable[[], object]] = [
        lambda: view.get(1),
        lambda: view.version,
        lambda: len(view),
        lambda: iter(view),
        view.snapshot,
        view.refresh,
        lambda: view.wait_for(1),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the view of script://store is closed"):
            use()


def test_closing_wakes_who_waits() -> None:
    view = LiveView(reader_of(1, rows(1)), NEVER)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            view.wait_for(2)
        except RuntimeError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    view.close()
    waiting.join(PATIENCE_SECONDS)
    assert [str(error) for error in raised] == [
        "the view of script://store is closed; open another one"
    ]


def test_closing_waits_for_the_request_that_is_under_way() -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(call: str) -> None:
        asked.set()
        answer.wait(PATIENCE_SECONDS)

    reader = reader_of(1, rows(1))
    view = LiveView(reader, OFTEN)
    reader.before = wait
    assert asked.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=view.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    answer.set()
    closing.join(PATIENCE_SECONDS)
    assert view_threads() == []


def test_the_thread_of_a_view_that_was_dropped_ends_by_itself() -> None:
    reader = reader_of(1, rows(1))
    view = LiveView(reader, OFTEN)
    eventually(lambda: reader.calls.count("info") > 3)
    dropped = weakref.ref(view)
    del view
    eventually(lambda: not view_threads())
    gc.collect()
    assert dropped() is None


def test_a_url_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        live_view(f"file://{tmp_path}")


@pytest.mark.process
def test_following_a_store_needs_no_spark() -> None:
    check = "import sys, spark_state.live_state; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
