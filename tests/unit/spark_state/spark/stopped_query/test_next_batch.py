"""A command plans a batch without rows with the right log entry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_state.spark.provider.query_checkpoint import LogEntry
from spark_state.spark.stopped_query.next_batch import empty_batch


def entry(path: str, content: dict[str, Any], *offsets: str) -> LogEntry:
    return LogEntry(path, "\n".join(["v1", json.dumps(content), *offsets]), content)


@pytest.mark.parametrize(
    ("commit", "watermark"), [({"nextBatchWatermarkMs": 700}, 700), ({}, 500), ({"v": 1}, 500)]
)
def test_it_has_the_offsets_of_the_last_batch_and_the_watermark_of_its_commit(
    commit: dict[str, Any], watermark: int
) -> None:
    metadata = {"batchWatermarkMs": 500, "batchTimestampMs": 9, "conf": {"name": "größe"}}
    last = entry("offsets/3", metadata, '{"logOffset":3}', "-")
    version, content, *offsets = empty_batch(last, entry("commits/3", commit)).split("\n")
    assert version == "v1"
    assert offsets == ['{"logOffset":3}', "-"]
    assert json.loads(content) == {**metadata, "batchWatermarkMs": watermark}
