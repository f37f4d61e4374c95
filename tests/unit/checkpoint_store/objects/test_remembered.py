"""A bounded memory of objects forgets the least recently used object first."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkpoint_store.objects.remembered import Remembered


def filled(most: int, count: int) -> Remembered[int, str]:
    remembered: Remembered[int, str] = Remembered(most)
    for key in range(count):
        remembered.put(key, f"value {key}")
    return remembered


def test_what_is_forgotten_is_not_remembered() -> None:
    remembered = filled(3, 2)
    remembered.forget(0)
    remembered.forget(7)
    assert [remembered.get(key) for key in range(2)] == [None, "value 1"]


def test_what_was_not_used_for_longest_goes_first() -> None:
    remembered = filled(3, 3)
    assert remembered.get(0) == "value 0"
    remembered.put(3, "value 3")
    assert [remembered.get(key) for key in range(4)] == ["value 0", None, "value 2", "value 3"]


def test_values_count_as_they_weigh() -> None:
    remembered: Remembered[str, str] = Remembered(5, len)
    for text in ("aaa", "bb", "cc"):
        remembered.put(text, text)
    assert [remembered.get(text) for text in ("aaa", "bb", "cc")] == [None, "bb", "cc"]


def test_it_pickles_with_its_values_and_goes_on() -> None:
    for count in (0, 3):
        copied = pickle.loads(pickle.dumps(filled(3, count)))
        assert len(copied) == count
        copied.put(7, "value 7")
        copied.put(8, "value 8")
        assert (copied.get(0), copied.get(8)) == (None, "value 8")
        assert len(copied) == min(count + 2, 3)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns as often as the interpreter allows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_threads_may_use_it_at_once() -> None:
    remembered = filled(2, 2)

    def use(seed: int) -> set[str | None]:
        values = set()
        for step in range(20_000):
            remembered.put((seed + step) % 5, f"value {(seed + step) % 5}")
            values.add(remembered.get(step % 5))
        return values

    with ThreadPoolExecutor(4) as pool:
        values = {value for read in pool.map(use, range(4)) for value in read}
    assert values <= {None, *(f"value {key}" for key in range(5))}
    assert len(remembered) == 2
