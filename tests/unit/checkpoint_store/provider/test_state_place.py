"""A checkpoint names the object store that holds its state."""

from __future__ import annotations

import pickle

import pytest

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source, encode_document
from checkpoint_store.object_names import STATE_PLACE
from checkpoint_store.objects.fsspec_object_store import FsspecObjectStore
from checkpoint_store.provider.state_place import (
    PlaceOpener,
    StatePlace,
    decode_state_place,
    state_files,
    state_place,
)
from tests.support.stores.fake_object_store import DictObjectStore

PLACE = StatePlace("s3://bucket/prefix", "the-query")
SOURCE = Source("file:///checkpoint", STATE_PLACE)


def test_it_has_the_bytes_that_are_drawn() -> None:
    assert PLACE.encode() == (
        b'{"body":{"directory":"the-query","url":"s3://bucket/prefix"},'
        b'"checksum":"5f4a48446f47b45ed0b0e97926dce1061616e4906dde74e75d202f933f6d8ae0",'
        b'"format":"cowstate/state-place","version":1}'
    )


@pytest.mark.parametrize("body", [{"url": "s3://b"}, {"url": 1, "directory": "d"}])
def test_other_content_is_damage(body: dict[str, object]) -> None:
    with pytest.raises(CorruptObjectError, match="It says which object store has the state"):
        decode_state_place(encode_document("state-place", body), SOURCE)


def test_a_checkpoint_without_one_has_its_state_itself() -> None:
    checkpoint = DictObjectStore()
    assert state_place(checkpoint) is None
    assert state_files(checkpoint, PlaceOpener()) is checkpoint


def test_a_checkpoint_with_one_has_it_in_the_directory_of_the_store() -> None:
    checkpoint = DictObjectStore()
    checkpoint.put(STATE_PLACE, PLACE.encode())
    opened: list[str] = []
    elsewhere = DictObjectStore()

    def open_store(url: str) -> DictObjectStore:
        opened.append(url)
        return elsewhere

    assert state_files(checkpoint, open_store) is elsewhere
    assert opened == ["s3://bucket/prefix/the-query"]


@pytest.mark.parametrize(
    ("checkpoint_url", "are_used"),
    [("s3://other/checkpoint", True), ("/checkpoint", True), ("gs://other/checkpoint", False)],
)
def test_options_of_a_reader_hold_for_the_store_of_the_same_protocol(
    checkpoint_url: str, are_used: bool
) -> None:
    opener = pickle.loads(pickle.dumps(PlaceOpener(checkpoint_url, {"anon": True})))
    opened = opener("s3://bucket/prefix/the-query")
    inner = opened._store
    assert isinstance(inner, FsspecObjectStore)
    assert inner.storage_options == ({"anon": True} if are_used else {})
