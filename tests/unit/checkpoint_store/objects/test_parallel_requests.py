"""Several requests at once: in order, by the caller's thread too, and none after a failure."""

from __future__ import annotations

import threading

import pytest

from checkpoint_store.objects.parallel_requests import in_parallel


def test_answers_come_in_the_order_of_the_arguments() -> None:
    assert in_parallel(str, range(100)) == [str(number) for number in range(100)]
    assert in_parallel(str, []) == []


def test_two_requests_take_one_thread_beside_the_caller_s() -> None:
    both = threading.Barrier(2)

    def meet(_: int) -> threading.Thread:
        both.wait()
        return threading.current_thread()

    first, second = in_parallel(meet, range(2))
    assert first is threading.current_thread()
    assert second is not first


def test_what_is_not_begun_when_the_first_request_fails_is_left_out() -> None:
    all_are_busy = threading.Event()
    begun: list[int] = []

    def request(number: int) -> None:
        begun.append(number)
        if number == 0:
            all_are_busy.wait()
            raise OSError("the network is down")
        if len(begun) >= 16:
            all_are_busy.set()
        never.wait(0.05)

    never = threading.Event()
    with pytest.raises(OSError, match="the network is down"):
        in_parallel(request, range(1000))
    assert len(begun) < 1000
