"""A failing chore is tried less and less often, and only a new kind of failure is logged."""

from __future__ import annotations

import logging

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.chore import Chore, try_chore

URL = "dict://store"


def chore(failures: int = 0) -> Chore:
    return Chore("sweeping", "Nothing is swept.", "It needs a broom", failures)


def test_one_that_fails_is_tried_at_powers_of_two_and_then_at_multiples_of_32() -> None:
    failing, tried = chore(), []
    for number in range(200):
        if failing.is_due(number):
            tried.append(number)
            failing.failures += 1
    assert tried == [0, 1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192]
    assert chore().is_due(193)


def test_what_is_done_is_given_and_what_is_not_due_is_left() -> None:
    assert try_chore(chore(), 5, URL, lambda: "done", "not") == "done"
    assert try_chore(chore(2), 5, URL, lambda: "done", "not") == "not"
    failed = chore(2)
    assert try_chore(failed, 6, URL, lambda: "done", "not") == "done"
    assert failed.failures == 0


def test_the_first_failure_is_a_warning_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def refused() -> str:
        raise StoreAccessError(URL, "no right")

    caplog.set_level(logging.INFO)
    failing = chore()
    assert [try_chore(failing, n, URL, refused, "not") for n in range(4)] == ["not"] * 4
    assert try_chore(failing, 4, URL, lambda: "done", "not") == "done"
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO", "INFO"]
    assert caplog.messages[0] == (
        "sweeping of dict://store failed, which harms no batch: no right. It is tried again later. "
        "Nothing is swept. It needs a broom"
    )
    assert caplog.messages[3] == "sweeping of dict://store works again, after 3 failures"
    assert not any(record.exc_info for record in caplog.records)
    caplog.clear()
    try_chore(chore(2), 6, URL, refused, "not")
    assert [record.levelname for record in caplog.records] == ["INFO"]
