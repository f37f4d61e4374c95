"""The names that versions of a live view had before, which go on working."""

from __future__ import annotations

import pytest

from spark_state.live_state import LiveView
from tests.support.scripted_reader import reader_of, rows

PATIENCE_SECONDS = 30.0


def test_versions_go_by_their_old_name_too() -> None:
    with LiveView(reader_of(5, rows(1)), 600.0) as view, view.snapshot() as snapshot:
        assert (view.epoch, snapshot.epoch) == (5, 5)
        view.wait_for(epoch=5, timeout_seconds=PATIENCE_SECONDS)  # type: ignore[call-arg]
        with pytest.raises(TimeoutError, match="version 6 did not come"):
            view.wait_for(epoch=6, timeout_seconds=0.01)  # type: ignore[call-arg]
