"""The output of an epoch waits for three requests to the store at most, one after the other. A
fourth request, a listing, runs beside the put of the barrier."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator, table_of, use_store
from tests.support.stores.fake_object_store import DictObjectStore, ObjectStoreInFront

ROWS = [(f"key {number}", 1) for number in range(200)]


class NotedRequests(ObjectStoreInFront):
    """A store that notes the kind of each request."""

    def __init__(self) -> None:
        super().__init__(DictObjectStore())
        self.kinds: list[str] = []

    def _before(self, call: str, *names: str) -> None:
        self.kinds.append(call)

    def taken(self) -> list[str]:
        """The kinds of the requests since the last call."""
        kinds, self.kinds = self.kinds, []
        return kinds


def requests_of(
    host: Host, store: NotedRequests, epoch: int, rows: list[tuple[str, int]]
) -> tuple[list[str], list[str]]:
    """Run an epoch of a subtask. Return the requests before the output, and after the output."""
    assert host.session is not None
    store.taken()
    attempt = host.session.accept(host.request(epoch, epoch + 1), lambda: None)
    with closing(host.session.receive(attempt.request)) as received:
        for batch in host.own(table_of(rows, host.spec.max_parallelism)).to_batches():
            received.add(batch)
        with host.session.run(attempt, received.all()) as durable:
            durable.output.close()
            before = store.taken()
    return before, store.taken()


@pytest.mark.parametrize("parallelism", [1, 2, 120])
@pytest.mark.parametrize(
    ("rows", "in_sequence"), [(ROWS, ["list", "put", "put"]), ([], ["list", "put"])]
)
def test_output_waits_for_a_listing_the_changes_and_the_barrier(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    maintenance: Maintenance,
    parallelism: int,
    rows: list[tuple[str, int]],
    in_sequence: list[str],
) -> None:
    store = NotedRequests()
    use_store(monkeypatch, store)
    spec = operator(tmp_path, parallelism=parallelism, max_parallelism=128)
    hosts = [Host(spec, subtask).open(maintenance) for subtask in range(parallelism)]
    for epoch in range(2):
        for host in hosts:
            host.epoch(epoch, ROWS)
    for host in hosts:
        has_rows = any(host.own_key(key) for key, _ in rows)
        before, after = requests_of(host, store, 2, rows)
        *earlier, last = in_sequence if has_rows else ["list", "put"]
        assert before[: len(earlier)] == earlier
        assert sorted(before[len(earlier) :]) == ["list", last]
        assert after[0] == "list"
        assert "put" not in after or host.subtask in (99, parallelism - 1)
    for host in hosts:
        host.close()
