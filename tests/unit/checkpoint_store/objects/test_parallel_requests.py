"""Parallel requests answer in order, use the caller's thread too, and stop after a failure."""

from __future__ import annotations

import os
import threading
import time

import pytest

from checkpoint_store.objects.parallel_requests import in_parallel

PATIENCE_SECONDS = 60


def test_answers_come_in_the_order_of_the_arguments() -> None:
    assert in_parallel(str, range(100)) == [str(number) for number in range(100)]
    assert in_parallel(str, [7]) == ["7"]
    assert in_parallel(str, []) == []


def test_two_requests_take_one_thread_beside_the_caller_s() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def meet(_: int) -> threading.Thread:
        both.wait()
        return threading.current_thread()

    first, second = in_parallel(meet, range(2))
    assert first is threading.current_thread()
    assert second is not first


@pytest.mark.parametrize("failing", [0, 1])
def test_what_is_not_begun_when_a_request_fails_is_left_out(failing: int) -> None:
    """Requests already begun when a request fails are finished."""
    others_have_begun, has_failed = threading.Event(), threading.Event()
    begun: list[int] = []

    def request(number: int) -> None:
        begun.append(number)
        if number == failing:
            assert others_have_begun.wait(PATIENCE_SECONDS)
            has_failed.set()
            raise OSError("the network is down")
        if number > 1:
            others_have_begun.set()
            assert has_failed.wait(PATIENCE_SECONDS)
            time.sleep(0.01)  # the thread that learns of the failure may have to wait for its turn

    with pytest.raises(OSError, match="the network is down"):
        in_parallel(request, range(1000))
    assert len(begun) < 1000


def test_requests_may_make_requests_themselves() -> None:
    """More than there are threads, so some requests find no free thread."""

    def of_ten(number: int) -> list[int]:
        return in_parallel(lambda digit: 10 * number + digit, range(10))

    assert in_parallel(of_ten, range(300), most=300) == [
        [*range(10 * number, 10 * number + 10)] for number in range(300)
    ]


def test_a_forked_process_has_threads_of_its_own() -> None:
    in_parallel(str, range(100))
    child = os.fork()
    if child == 0:
        both = threading.Barrier(2, timeout=PATIENCE_SECONDS)
        try:
            in_parallel(lambda _: both.wait(), range(2))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
