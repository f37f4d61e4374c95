"""A retrying store repeats temporary failures for a limited time, and logs each outage once."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from checkpoint_store.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAccessError,
    StoreUnavailableError,
)
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from tests.support.stores.fake_object_store import DictObjectStore, FakeTime, FlakyObjectStore

RETRY_SECONDS = 120
LONGEST_WAIT_SECONDS = 5.0


class Rig:
    """A store that fails on purpose, below a retrying store, with a clock of the test."""

    def __init__(self, name: str, after_effect: bool = False) -> None:
        self.time = FakeTime()
        self.flaky = FlakyObjectStore(DictObjectStore(f"dict://{name}"), after_effect=after_effect)
        self.store = self.another()

    def another(self) -> RetryingObjectStore:
        return RetryingObjectStore(self.flaky, RETRY_SECONDS, self.time, self.time.sleep)

    def away(self, seconds: float) -> None:
        """Make the store unreachable for some seconds from now on."""
        back_at = self.time.now + seconds
        self.flaky.is_away = lambda: self.time.now < back_at


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(request.node.name)


def test_every_call_outlasts_a_store_that_is_away_for_a_while(rig: Rig) -> None:
    rig.away(100)
    rig.store.put("d/a", b"x")
    rig.away(100)
    assert rig.store.get("d/a") == b"x"
    rig.away(100)
    assert [info.name for info in rig.store.list("d")] == ["d/a"]
    rig.away(100)
    assert list(rig.store.list_directories("")) == ["d"]
    rig.away(100)
    rig.store.delete(["d/a"])
    assert list(rig.store.list("d")) == []
    assert rig.time.now >= 500
    assert rig.store.url == rig.flaky.url


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (lambda store: store.put("d/a", b"x"), "writing d/a"),
        (lambda store: store.get("d/a"), "reading d/a"),
        (lambda store: store.get_range("d/a", 0, 1), "reading d/a"),
        (lambda store: store.list("d"), "listing d"),
        (lambda store: store.list_directories("d"), "listing d"),
        (lambda store: store.delete(["d/a"]), "deleting d/a"),
        (lambda store: store.delete(["d/a", "d/b"]), "deleting 2 objects"),
    ],
)
def test_a_store_that_stays_away_is_an_error_that_says_what_was_tried_and_how_long(
    rig: Rig, operation: Callable[[RetryingObjectStore], object], what: str
) -> None:
    rig.away(10_000)
    with pytest.raises(StoreUnavailableError) as caught:
        operation(rig.store)
    error = caught.value
    assert (error.url, error.operation, error.seconds) == (rig.flaky.url, what, RETRY_SECONDS)
    assert f"{what} failed for 120 s" in str(error)
    assert "the network is down" in str(error)
    assert "storeRetrySeconds" in str(error)
    assert error.__cause__ is None, "the client library's traceback would go to every log"
    assert rig.time.now == RETRY_SECONDS, "the last attempt is made when the time is up"


def test_the_time_counts_from_the_first_failure(rig: Rig) -> None:
    """A slow failure, such as a connection timeout, is still retried."""
    rig.flaky.is_away = lambda: rig.time.sleep(300) or rig.time.now < 350
    rig.store.put("d/a", b"x")
    assert rig.time.now >= 600


def test_waits_are_random_parts_of_a_time_that_grows_up_to_a_bound(rig: Rig) -> None:
    rig.away(10_000)
    with pytest.raises(StoreUnavailableError):
        rig.store.get("d/a")
    waits = rig.time.waits
    assert len(waits) > RETRY_SECONDS / LONGEST_WAIT_SECONDS
    bounds = [min(0.25 * 2**number, LONGEST_WAIT_SECONDS) for number in range(len(waits))]
    assert all(0 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    late = waits[10:-1]
    assert min(late) < LONGEST_WAIT_SECONDS / 3, "full jitter begins at nothing"
    assert max(late) > LONGEST_WAIT_SECONDS * 2 / 3


@pytest.mark.parametrize(
    "error",
    [
        ObjectMissingError("u", "n"),
        StoreAccessError("u", "no permission"),
        ValueError("a bug"),
        ObjectExistsError("u", "n"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(rig: Rig, error: Exception) -> None:
    rig.flaky.errors = [error]
    with pytest.raises(type(error)) as caught:
        rig.store.put("d/a", b"x")
    assert caught.value is error
    assert rig.flaky.calls == 1
    assert rig.time.waits == []


def test_a_create_whose_answer_was_lost_finds_its_own_object() -> None:
    rig = Rig("lost-answer", after_effect=True)
    rig.flaky.fail(1)
    rig.store.put("d/a", b"x")
    assert rig.store.get("d/a") == b"x"


def test_a_create_does_not_take_another_writers_object_for_its_own(rig: Rig) -> None:
    rig.store.put("d/a", b"other")
    rig.flaky.fail(1)
    with pytest.raises(ObjectExistsError):
        rig.store.put("d/a", b"x")


def test_a_create_that_fails_at_once_on_a_taken_name_reads_nothing(rig: Rig) -> None:
    rig.store.put("d/a", b"x")
    calls = rig.flaky.calls
    with pytest.raises(ObjectExistsError):
        rig.store.put("d/a", b"x")
    assert rig.flaky.calls == calls + 1


def test_no_retry_seconds_are_one_attempt(rig: Rig) -> None:
    rig.flaky.fail(99, errno.ETIMEDOUT)
    store = RetryingObjectStore(rig.flaky, 0, rig.time, rig.time.sleep)
    with pytest.raises(StoreUnavailableError, match="failed for 0 s"):
        store.get("d/a")
    assert rig.flaky.calls == 1


class TestLog:
    @pytest.fixture(autouse=True)
    def lines_of_outages(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)

    def lines(self, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
        assert not any(record.exc_info for record in caplog.records)
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    def test_an_outage_has_two_lines(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        rig.store.put("d/a", b"x")
        rig.away(25)
        rig.store.get("d/a")
        began, ended = self.lines(caplog)
        problem = "OSError: [Errno 5] the network is down"
        url = rig.flaky.url
        said = f"{url} does not answer ({problem}); calls to it are tried again for 120 s"
        assert began == ("WARNING", said)
        assert ended[0] == "WARNING"
        seconds = int(ended[1].removeprefix(f"{url} answers again, after ").removesuffix(" s"))
        assert 25 <= seconds <= 30

    def test_a_call_that_is_answered_when_it_is_tried_again_is_no_outage(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig.flaky.fail(1)
        rig.store.put("d/a", b"x")
        assert self.lines(caplog) == []

    def test_calls_that_are_given_up_one_after_the_other_are_one_outage(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig.away(400)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                rig.another().get("d/a")
        rig.store.put("d/a", b"x")
        began, ended = [line for _, line in self.lines(caplog)]
        assert "does not answer" in began
        assert "answers again, after 40" in ended

    def test_an_answer_ends_an_outage_only_once_no_other_call_fails(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        """While listings work and writes fail, the log shows one outage."""
        rig.flaky.store.put("d/b", b"y")  # type: ignore[attr-defined]
        other = RetryingObjectStore(rig.flaky.store, RETRY_SECONDS, rig.time)  # type: ignore[attr-defined]
        answers: list[bytes] = []
        rig.away(25)
        rig.time.while_waiting = lambda: answers.append(other.get("d/b"))
        rig.store.put("d/a", b"x")
        assert len(answers) > 3
        assert [line.split()[1] for _, line in self.lines(caplog)] == ["does", "answers"]

    def test_an_answer_may_be_an_error(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        rig.away(25)
        with pytest.raises(ObjectMissingError):
            rig.store.get("d/a")
        assert [line.split()[1] for _, line in self.lines(caplog)] == ["does", "answers"]

    def test_an_interrupt_ends_no_outage(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        rig.away(50)

        def interrupt() -> None:
            if rig.time.now > 10:
                raise KeyboardInterrupt

        rig.time.while_waiting = interrupt
        with pytest.raises(KeyboardInterrupt):
            rig.store.get("d/a")
        assert [line.split()[1] for _, line in self.lines(caplog)] == ["does"]
        rig.time.while_waiting = lambda: None
        rig.store.put("d/a", b"x")
        assert [line.split()[1] for _, line in self.lines(caplog)] == ["does", "answers"]

    def test_tracebacks_are_for_debugging(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        rig.away(10_000)
        with pytest.raises(StoreUnavailableError):
            rig.store.get("d/a")
        assert [r.levelname for r in caplog.records if r.exc_info] == ["DEBUG"]
