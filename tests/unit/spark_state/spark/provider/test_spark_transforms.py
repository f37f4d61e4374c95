"""Query starts run beside each other, except a start that needs another provider."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from spark_state import ConfigurationError
from spark_state.spark.provider import spark_transforms
from spark_state.spark.provider.spark_transforms import QueryStarts

ROUNDS = 300


@pytest.fixture
def _switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_switching_often")
def test_a_start_with_another_provider_sees_no_other_start() -> None:
    starts, under_way, lock = QueryStarts(), Counter[str](), threading.Lock()
    seen: set[tuple[int, int]] = set()

    def note(kind: str, change: int) -> None:
        with lock:
            under_way[kind] += change
            seen.add((under_way["alone"], under_way["beside"]))

    def beside() -> None:
        for _ in range(ROUNDS):
            with starts.start(alone=False):
                note("beside", 1)
                # A listener that hears of a start may start another query.
                with starts.start(alone=False):
                    note("beside", 1)
                note("beside", -2)

    def alone() -> None:
        for _ in range(ROUNDS):
            with starts.start(alone=True):
                note("alone", 1)
                note("alone", -1)

    threads = [threading.Thread(target=target) for target in (beside, alone, beside, alone)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (1, 0) in seen
    assert (0, 2) in seen
    assert not [pair for pair in seen if pair[0] > 1 or all(pair)]


def test_a_start_that_waits_for_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_transforms, "_PATIENCE_SECONDS", 0.0)
    starts = QueryStarts()
    with (
        starts.start(alone=False),
        pytest.raises(ConfigurationError, match="outside of onQueryStarted"),
        starts.start(alone=True),
    ):
        pass
    with starts.start(alone=True):
        pass
