"""Bytes and moments are printed in a form that people read easily."""

from __future__ import annotations

from datetime import datetime

import pytest

from checkpoint_store.amounts import moment_text, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (7_140_000, "7.1 MB"),
        (5 * 10**12, "5000.0 GB"),
    ],
)
def test_bytes_have_a_unit_that_keeps_the_number_short(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (-1, "1969-12-31T23:59:59.999000+00:00"),
        (2**62, f"{2**62} ms"),
        (-(2**62), f"{-(2**62)} ms"),
    ],
)
def test_a_moment_that_python_has_not_is_its_milliseconds(milliseconds: int, text: str) -> None:
    assert moment_text(milliseconds, datetime.isoformat) == text
