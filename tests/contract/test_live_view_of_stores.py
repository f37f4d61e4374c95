"""A live view of a table and of an operator's state, on disk and on S3 over HTTP, and damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.tables.table_layout import version_name
from spark_state.live_state import live_view
from tests.support.operators.keyed_operator import KeyedOperator
from tests.support.stores.moto_s3 import moto_s3
from tests.support.tables.table_rows_of import ScriptedTable, gone, put

POLL_SECONDS, NEVER = 0.02, 600.0
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Place:
    """The URL of a store, and the options to open the store."""

    url: str
    storage_options: Mapping[str, Any]

    def store(self) -> ObjectStore:
        return open_object_store(self.url, dict(self.storage_options))


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "file":
        yield Place(tmp_path.as_uri(), {})
        return
    with moto_s3() as server:
        yield Place(f"{server.new_bucket()}/below/here", server.storage_options)


def test_a_table_is_followed_and_a_snapshot_stays_whole(place: Place) -> None:
    table = ScriptedTable(place.store())
    table.commit(0, put(1, "a", 10), put(2, "b", 20))
    with live_view(place.url, place.storage_options, poll_seconds=POLL_SECONDS) as view:
        before = view.snapshot()
        assert before.get(2) == {"name": "b", "count": 20}
        table.commit(1, gone(2), put(3, "c", 30))
        view.wait_for(1, TIMEOUT_SECONDS)
        assert dict(view) == {1: {"name": "a", "count": 10}, 3: {"name": "c", "count": 30}}
        assert 2 in before
        assert (before.version, view.version) == (0, 1)
        assert view.error is None


def test_a_state_of_an_operator_is_followed_through_its_restart(place: Place) -> None:
    store = place.store()
    first = KeyedOperator(store)
    first.run_epoch(0, {0: 10, 5: 50})
    with live_view(place.url, place.storage_options, poll_seconds=POLL_SECONDS) as view:
        assert dict(view) == {0: {"n": 10}, 5: {"n": 50}}
        first.run_epoch(1, {5: 51, 7: 70})
        view.wait_for(1, TIMEOUT_SECONDS)
        assert view.get(5) == {"n": 51}
        KeyedOperator(store, "run-b", parallelism=4).run_epoch(2, {1: 11})
        view.wait_for(2, TIMEOUT_SECONDS)
        assert dict(view) == {0: {"n": 10}, 1: {"n": 11}, 5: {"n": 51}, 7: {"n": 70}}
        assert view.error is None


def test_a_state_is_chosen_by_name_and_an_unknown_name_is_refused(place: Place) -> None:
    KeyedOperator(place.store()).run_epoch(0, {3: 30})
    options = place.storage_options
    with live_view(place.url, options, state="count", poll_seconds=POLL_SECONDS) as view:
        assert len(view) == 1
    with pytest.raises(Exception, match=r"counts?") as raised:
        live_view(place.url, options, state="counts")
    assert type(raised.value).__name__ == "StateNotFoundError"


@pytest.mark.parametrize("damage", ["version", "no version", "file", "no file"])
def test_damage_between_the_shown_and_the_newest_is_not_needed(place: Place, damage: str) -> None:
    store = place.store()
    table = ScriptedTable(store)
    table.commit(0, put(1, "a", 10))
    with live_view(place.url, place.storage_options, poll_seconds=NEVER) as view:
        version = table.commit(1, put(2, "b", 20))
        whole = table.write(2, [put(3, "c", 30)], kind="snapshot")
        table.publish(2, [whole], merge=lambda _: (whole,))
        name = version.changes[0].name if "file" in damage else version_name(1)
        store.delete([name])
        if not damage.startswith("no "):
            store.put(name, b"cut")
        view.refresh()
        assert (view.version, dict(view)) == (2, {3: {"name": "c", "count": 30}})
        assert view.error is None


def test_a_damaged_newest_version_is_told_while_the_last_one_stays(place: Place) -> None:
    store = place.store()
    table = ScriptedTable(store)
    table.commit(0, put(1, "a", 10))
    with live_view(place.url, place.storage_options, poll_seconds=NEVER) as view:
        table.commit(1, put(2, "b", 20))
        name, intact = version_name(1), store.get(version_name(1))
        store.delete([name])
        store.put(name, intact[:-1])
        with pytest.raises(CorruptObjectError, match=name):
            view.refresh()
        assert (view.version, dict(view)) == (0, {1: {"name": "a", "count": 10}})
        assert isinstance(view.error, CorruptObjectError)
        store.delete([name])
        store.put(name, intact)
        view.refresh()
        assert (view.version, len(view), view.error) == (1, 2, None)
