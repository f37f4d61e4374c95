"""A Spark Connect builder has a URL, and either connects to a server or starts a server."""

from __future__ import annotations

from typing import Any

import pytest

from spark_state.spark.provider.connect_configuration import connect_url, starts_server


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_LOCAL_CONNECT_REUSE", "MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "url", "starts"),
    [
        ({"spark.remote": "sc://host:15002"}, "sc://host:15002", False),
        ({"spark.remote": "local[2]"}, "local[2]", True),
        ({"spark.remote": "local[2]", "spark.local.connect.reuse": "true"}, "local[2]", False),
        ({"spark.api.mode": "connect", "spark.master": "spark://host"}, "spark://host", True),
        ({"spark.api.mode": "Connect"}, "local", True),
    ],
)
def test_a_builder_of_spark_connect_has_a_url(
    options: dict[str, Any], url: str, starts: bool
) -> None:
    assert connect_url(options) == url
    assert starts_server(url, options) is starts


@pytest.mark.parametrize(
    "options", [{}, {"spark.master": "local[2]"}, {"spark.api.mode": "classic"}]
)
def test_a_classic_builder_has_none(options: dict[str, Any]) -> None:
    assert connect_url(options) is None


def test_the_environment_counts_where_the_builder_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "local[4]")
    assert connect_url({}) == "local[4]"
    assert connect_url({"spark.remote": "sc://host"}) == "sc://host"
    monkeypatch.setenv("SPARK_LOCAL_CONNECT_REUSE", "1")
    assert not starts_server("local[4]", {})
