"""A query's checkpoint location is found, and a check runs before each start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.queries.query_starts import (
    check_starts,
    checkpoint_location,
    refuse_async_progress,
)


@pytest.mark.parametrize(
    ("options", "root", "name", "location"),
    [
        ({"checkpointLocation": "/here"}, None, None, "/here"),
        ({"CHECKPOINTLOCATION": "/here", "queryName": "q"}, "/root", "n", "/here"),
        ({"checkpointlocation": "/before", "checkpointLocation": "/call"}, None, None, "/call"),
        ({"checkpointLocation": None, "queryName": None}, "/root", "n", "/root/n"),
        ({"queryName": "q"}, "/root", "n", "/root/q"),
        ({"queryName": "q"}, None, None, None),
        ({}, "/root", "n", "/root/n"),
        ({}, "/root", "", None),
        ({}, None, "n", None),
    ],
)
def test_the_option_comes_first_and_then_the_name_below_the_location_of_the_session(
    options: Mapping[str, Any], root: str | None, name: str | None, location: str | None
) -> None:
    assert checkpoint_location(options, root, name) == location


def test_a_query_that_plans_batches_ahead_of_its_commits_is_refused() -> None:
    refuse_async_progress({"asyncProgressTrackingEnabled": "false", "checkpointLocation": "/here"})
    with pytest.raises(ConfigurationError, match="asyncProgressTrackingEnabled is true"):
        refuse_async_progress({"asyncprogresstrackingenabled": True})


def test_the_check_comes_before_each_start_once_and_may_refuse_it() -> None:
    calls: list[Any] = []

    def starts(writer: Any, target: str, queryName: str = "", **options: Any) -> str:  # noqa: N803
        calls.append(target)
        return "query"

    writers: Any = type("Writers", (), {"start": starts, "toTable": starts})

    def check(writer: Any, options: Mapping[str, Any]) -> None:
        calls.append(dict(options))
        if options.get("mode") == "bad":
            raise ValueError(options["mode"])

    for _ in range(2):
        check_starts(writers, check)
    assert writers().start("/rows", mode="good") == "query"
    assert writers().toTable("rows", "by place") == "query"
    with pytest.raises(ValueError, match="bad"):
        writers().start("/rows", mode="bad")
    good, by_place, bad = calls[0], calls[2], calls[4]
    assert calls[1::2] == ["/rows", "rows"]
    assert good == {"target": "/rows", "mode": "good"}
    assert by_place == {"target": "rows", "queryName": "by place"}
    assert bad == {"target": "/rows", "mode": "bad"}


def test_a_start_that_fails_is_told_to_who_noted_it() -> None:
    told: list[Any] = []

    def fails(writer: Any) -> None:
        raise OSError("no checkpoint")

    writers: Any = type("Writers", (), {"start": fails, "toTable": fails})
    check_starts(writers, lambda writer, options: told.append)
    with pytest.raises(OSError, match="no checkpoint"):
        writers().start()
    assert told == [None]
