"""The order in which the operators of a query are told of: by name, and numbers in names as
numbers, so `operator-2` comes before `operator-10`. A store does not know its query's plan, so no
other order is the same everywhere."""

from __future__ import annotations

import re

_NUMBER = re.compile("([0-9]+)")

Order = tuple[list[str | int], str]


def operator_order(url: str) -> Order:
    """What an operator is sorted by. `url`: its store's, or the last part of that."""
    name = url.rstrip("/").rpartition("/")[2]
    # Texts and numbers take turns, and a text comes first, so like is compared with like.
    parts = [int(part) if _NUMBER.fullmatch(part) else part for part in _NUMBER.split(name)]
    return parts, url
