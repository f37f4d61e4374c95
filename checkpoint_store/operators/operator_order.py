"""The order in which the operators of a query are listed: by name, with numbers compared as
numbers.

So `operator-2` comes before `operator-10`. A store does not know its query's plan, and no other
order is the same everywhere.
"""

from __future__ import annotations

import re

_NUMBER = re.compile("([0-9]+)")

Order = tuple[list[str | int], str]


def operator_order(url: str) -> Order:
    """The sort key of an operator. `url`: the URL of the operator's store, or the last part of the
    URL."""
    name = url.rstrip("/").rpartition("/")[2]
    # Texts and numbers take turns, and a text comes first. So parts at one place are of one type.
    parts = [int(part) if _NUMBER.fullmatch(part) else part for part in _NUMBER.split(name)]
    return parts, url
