"""The documents of an operator's store have the bytes that the format documents."""

from __future__ import annotations

import json
from dataclasses import replace

from checkpoint_store.epochs.checkpoint_codec import (
    decode_barrier,
    encode_barrier,
    encode_manifest,
    encode_metadata,
    encode_run,
)
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.files.document import encode_document
from tests.unit.checkpoint_store.files.test_document import (
    BARRIER,
    CHECKPOINT,
    FULL_BARRIER,
    SOURCE,
    STORE,
)


def test_a_report_says_only_what_its_release_knew() -> None:
    old = replace(BARRIER, report=EpochReport(9, 8, 7, 6, 50, 400, 3, 2, 1))
    body = json.loads(encode_barrier(old))["body"]
    later = {"late_rows", "timers", "memory_bytes", "last_publish_ms", "states_deleted"}
    later |= {"failed_snapshots"}
    assert later.isdisjoint(body["report"])
    body["report"]["of_a_later_release"] = 1
    assert decode_barrier(encode_document("barrier", body), SOURCE) == old


def test_only_what_names_databases_has_a_later_version() -> None:
    of_full = replace(CHECKPOINT, barriers=(BARRIER, replace(FULL_BARRIER, subtask=1)))
    restored = replace(BARRIER, restored=True)
    encoded = [encode_barrier(FULL_BARRIER), encode_manifest(of_full)]
    encoded += [encode_barrier(restored), encode_manifest(CHECKPOINT)]
    assert [json.loads(data)["version"] for data in encoded] == [2, 2, 1, 1]


def test_a_barrier_without_deleted_states_does_not_mention_them() -> None:
    assert "deleted_states" not in json.loads(encode_barrier(BARRIER))["body"]


def test_bytes_are_those_that_the_format_documents() -> None:
    assert encode_run(Run(3, "run-c")) == (
        b'{"body":{"number":3,"run_id":"run-c"},'
        b'"checksum":"7416ae3363185896d410c48bb2c2052422eb8bd1e1a5e4b6169010d3768ff31e",'
        b'"format":"cowstate/run","version":1}'
    )
    assert b"Z\xc3\xa4hler" in encode_metadata(STORE)
