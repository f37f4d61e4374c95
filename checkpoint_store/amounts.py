"""Texts for people: sizes in bytes, ranges of epochs, moments in milliseconds since 1970. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)


def size_text(count: int) -> str:
    """Return a number of bytes in a unit that keeps the number short: 900 bytes, 7.1 MB."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def moment_text(milliseconds: int, show: Callable[[datetime], str]) -> str:
    """Return the text that `show` makes of a moment in UTC. A moment after the year 9999, such as
    the time of a timer that never fires, is returned as a number of milliseconds, because Python
    has no such dates."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return show(moment)


def epochs_text(first: int, last: int) -> str:
    """Return "epoch 3", or "epochs 3 to 5"."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
