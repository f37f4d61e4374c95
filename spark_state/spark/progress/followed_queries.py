"""Keeps a collector's sums for the running queries from one scrape to the next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Followed = TypeVar("Followed")

_log = logging.getLogger(__name__)


class FollowedQueries(Generic[Key, Followed]):
    """The followed queries, or parts of queries, by key. `queries`: returns the running queries;
    `what`: the metrics that are missing if Spark does not answer for a query, for the log."""

    def __init__(self, queries: Callable[[], Sequence[Any]], what: str) -> None:
        self._queries = queries
        self._what = what
        self._followed: dict[Key, Followed] = {}
        self._is_failing = False

    def look(
        self, follow: Callable[[Any, Mapping[Key, Followed]], Mapping[Key, Followed]]
    ) -> list[Followed]:
        """Follow the running queries, and return what `follow` returned for them. Forget queries
        that have ended.

        `follow`: gets a query and the entries of the scrape before, and returns the entries of the
        query. If `follow` fails for a query, the log has a warning when the failures begin, and the
        entries are kept for the next scrape."""
        shown, errors = dict[Key, Followed](), []
        for query in self._queries():
            try:
                shown |= follow(query, self._followed)
            except Exception as error:
                errors.append(error)
        if errors and not self._is_failing:
            count = len(errors)
            _log.warning("metrics lack %s of %d running queries: %s", self._what, count, errors[0])
        self._is_failing = bool(errors)
        self._followed = {**self._followed, **shown} if errors else shown
        return [*shown.values()]
