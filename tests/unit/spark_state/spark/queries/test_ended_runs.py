"""Tasks hear which runs of queries had ended when their query started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_state.spark.queries import ended_runs


def test_a_run_is_named_once_its_query_or_its_jvm_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ended_runs, "_started", {})
    monkeypatch.setattr(ended_runs, "_ended", [])
    here, properties = object(), dict[str, str]()
    for run_id, client, is_active in (
        ("ended", here, False),
        ("running", here, True),
        ("of a lost JVM", object(), True),
    ):
        handle = SimpleNamespace(_gateway_client=client)
        query: Any = SimpleNamespace(runId=run_id, isActive=is_active, _jsq=handle)
        ended_runs.note_started(query)
    gateway = SimpleNamespace(_gateway_client=here)
    driver: Any = SimpleNamespace(_gateway=gateway, setLocalProperty=properties.__setitem__)
    ended_runs.name_ended_runs(driver)
    task: Any = SimpleNamespace(getLocalProperty=properties.get)
    assert ended_runs.ended_runs(task) == ("ended", "of a lost JVM")
