"""Markers: small objects through which a task tells an operator's clock the id of the query.

An operator's clock is a streaming source that gives each subtask the time of the batch.

    <store root>/_clocks/<32 hex digits>    the id of a query; deleted when read

Each clock draws the hex digits of its own marker. If a clock's process dies before the clock reads
the marker, the marker stays. Markers an hour old are deleted by the next clock that reads its own
marker, and once an hour by every state host with an operator below the root. If a marker was
deleted before its clock read the marker, the clock asks again.
"""

from __future__ import annotations

import re
from dataclasses import replace

from checkpoint_store.objects.deletion import modified_before
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore

CLOCKS = "_clocks"
_MARKER = re.compile("[0-9a-f]{32}")
_GRACE_SECONDS = 3_600.0


def sweep_markers(clocks: ObjectStore, now: float) -> None:
    """Delete the markers of dead processes in the directory `clocks`. `now`: the time of the store
    in seconds since 1970."""
    markers = [
        replace(info, name=name)
        for info in clocks.list("")
        if _MARKER.fullmatch(name := info.name.lstrip("/"))
    ]
    old = modified_before(now - _GRACE_SECONDS, [*markers, *clocks.list(UNPUBLISHED)])
    if old:
        clocks.delete(old)
