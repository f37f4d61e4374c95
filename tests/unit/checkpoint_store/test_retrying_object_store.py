"""Which failures are tried again, how often, and what is said then."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from checkpoint_store.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAccessError,
    StoreUnavailableError,
)
from checkpoint_store.retrying_object_store import RetryingObjectStore
from tests.support.fake_object_store import DictObjectStore, FlakyObjectStore


def flaky_pair(after_effect: bool = False) -> tuple[FlakyObjectStore, RetryingObjectStore]:
    flaky = FlakyObjectStore(DictObjectStore(), after_effect=after_effect)
    return flaky, RetryingObjectStore(flaky, attempts=4, wait_seconds=0.001)


def test_every_call_outlasts_a_short_failure() -> None:
    flaky, store = flaky_pair()
    flaky.fail(3)
    store.put("d/a", b"x")
    flaky.fail(3)
    assert store.get("d/a") == b"x"
    flaky.fail(3)
    assert [info.name for info in store.list("d")] == ["d/a"]
    flaky.fail(3)
    assert list(store.list_directories("")) == ["d"]
    flaky.fail(3)
    store.delete(["d/a"])
    assert list(store.list("d")) == []
    assert store.url == flaky.url


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (lambda store: store.put("d/a", b"x"), "writing d/a"),
        (lambda store: store.get("d/a"), "reading d/a"),
        (lambda store: store.list("d"), "listing d"),
        (lambda store: store.list_directories("d"), "listing d"),
        (lambda store: store.delete(["d/a"]), "deleting d/a"),
        (lambda store: store.delete(["d/a", "d/b"]), "deleting 2 objects"),
    ],
)
def test_a_store_that_stays_down_is_an_error_that_says_what_was_tried(
    operation: Callable[[RetryingObjectStore], object], what: str
) -> None:
    flaky, store = flaky_pair()
    flaky.fail(99, errno.ETIMEDOUT)
    with pytest.raises(StoreUnavailableError) as caught:
        operation(store)
    error = caught.value
    assert (error.url, error.operation, error.attempts) == (flaky.url, what, 4)
    assert "the network is down" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert flaky.calls == 4


@pytest.mark.parametrize(
    "error",
    [
        ObjectMissingError("u", "n"),
        StoreAccessError("u", "no permission"),
        ValueError("a bug"),
        ObjectExistsError("u", "n"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(error: Exception) -> None:
    flaky, store = flaky_pair()
    flaky.errors = [error]
    with pytest.raises(type(error)) as caught:
        store.put("d/a", b"x")
    assert caught.value is error
    assert flaky.calls == 1


def test_a_create_whose_answer_was_lost_finds_its_own_object() -> None:
    flaky, store = flaky_pair(after_effect=True)
    flaky.fail(1)
    store.put("d/a", b"x")
    assert store.get("d/a") == b"x"


def test_a_create_does_not_take_another_writers_object_for_its_own() -> None:
    flaky, store = flaky_pair()
    store.put("d/a", b"other")
    flaky.fail(1)
    with pytest.raises(ObjectExistsError):
        store.put("d/a", b"x")


def test_a_create_that_fails_at_once_on_a_taken_name_reads_nothing() -> None:
    flaky, store = flaky_pair()
    store.put("d/a", b"x")
    calls = flaky.calls
    with pytest.raises(ObjectExistsError):
        store.put("d/a", b"x")
    assert flaky.calls == calls + 1


def test_no_attempt_begins_after_the_time_is_up() -> None:
    flaky = FlakyObjectStore(DictObjectStore())
    flaky.fail(99)
    store = RetryingObjectStore(flaky, attempts=99, wait_seconds=0.05, give_up_seconds=0.2)
    with pytest.raises(StoreUnavailableError):
        store.get("d/a")
    assert 2 <= flaky.calls <= 5
