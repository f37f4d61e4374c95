"""Amounts as people read them: bytes, epochs, and moments in milliseconds since 1970. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)


def size_text(count: int) -> str:
    """So many bytes, in a unit that keeps the number short: 900 bytes, 7.1 MB."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def moment_text(milliseconds: int, show: Callable[[datetime], str]) -> str:
    """What `show` makes of a moment, which it gets in UTC; the milliseconds if Python knows no such
    moment: a timer that is never to fire may be after the year 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return show(moment)


def epochs_text(first: int, last: int) -> str:
    """One epoch, or the epochs from the first to the last."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
