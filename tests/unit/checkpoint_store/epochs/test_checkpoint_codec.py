"""The documents of an operator's store have the fields and bytes that the format documents."""

from __future__ import annotations

import json

from checkpoint_store.epochs.checkpoint_codec import (
    decode_barrier,
    encode_barrier,
    encode_metadata,
    encode_run,
)
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.files.document import encode_document
from tests.unit.checkpoint_store.files.test_document import (
    BARRIER,
    SOURCE,
    STORE,
)


def test_fields_of_a_later_release_are_ignored() -> None:
    body = json.loads(encode_barrier(BARRIER))["body"]
    for place in (body, body["report"], body["handles"][0]):
        place["of_a_later_release"] = 1
    assert decode_barrier(encode_document("barrier", body), SOURCE) == BARRIER


def test_bytes_are_those_that_the_format_documents() -> None:
    assert encode_run(Run(3, "run-c")) == (
        b'{"body":{"number":3,"run_id":"run-c"},'
        b'"checksum":"7416ae3363185896d410c48bb2c2052422eb8bd1e1a5e4b6169010d3768ff31e",'
        b'"format":"cowstate/run","version":1}'
    )
    assert b"Z\xc3\xa4hler" in encode_metadata(STORE)
