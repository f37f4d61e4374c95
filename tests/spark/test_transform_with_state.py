"""The operator agrees with a batch computation of the same input, end to end in one session."""

from __future__ import annotations

import pytest

from tests.support.applications.streams import Stream, random_rows, totals_of

pytestmark = pytest.mark.spark


def test_totals_over_epochs_with_and_without_rows_and_restarts_equal_the_batch_computation(
    stream: Stream,
) -> None:
    for counts in ((500, 0, 500), (200,), (0,), (200,)):
        for count in counts:
            stream.feed(random_rows(len(stream.fed), count, keys=100))
        stream.run()
    assert stream.totals() == totals_of(stream.fed)
