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
