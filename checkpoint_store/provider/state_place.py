"""The place of the state of a query on the provider: the checkpoint, or an object store.

    <checkpoint>/state/cowstate-store.json      names the object store, if there is one:

        {"body":{"directory":"<query id>","url":"s3://bucket/prefix"},
         "checksum":"<sha256>","format":"cowstate/state-place","version":1}

    <url>/<directory>/state/<operator>/<partition>[/<store>]/...    the files, under the same names
    <url>/<directory>/runs/<number>-<run>.json                      the run that writes there

Spark's own files (commits, offsets, schemas, metadata of operators) stay in the checkpoint.
`StateMarker.scala` and `RunClaim.scala` write these objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint_store.errors import ObjectMissingError
from checkpoint_store.files.document import Source, decode_document, encode_document
from checkpoint_store.files.document_body import Body, check_name, decode_body
from checkpoint_store.object_names import STATE_PLACE, parse_object_name
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS

_KIND = "state-place"

OpenStore = Callable[[str], ObjectStore]
"""Opens the store at a URL."""


@dataclass(frozen=True, slots=True)
class StatePlace:
    """A directory of an object store, for one checkpoint only."""

    url: str
    directory: str

    @property
    def root(self) -> str:
        """The URL of the directory."""
        return f"{self.url}/{self.directory}"

    def encode(self) -> bytes:
        """The bytes of the checkpoint's object that names this place."""
        return encode_document(_KIND, self)


def decode_state_place(data: bytes, source: Source) -> StatePlace:
    """Decode the object that names a place. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> StatePlace:
        place = decode_body(StatePlace, body)
        check_name(place.directory, parse_object_name)
        return place

    return decode_document(_KIND, data, source, build)


def state_place(checkpoint: ObjectStore) -> StatePlace | None:
    """The place of a checkpoint's state; None: the checkpoint itself. Raises CorruptObjectError,
    UnsupportedFormatError."""
    try:
        data = checkpoint.get(STATE_PLACE)
    except ObjectMissingError:
        return None
    return decode_state_place(data, Source(checkpoint.url, STATE_PLACE))


def state_files(checkpoint: ObjectStore, open_store: OpenStore) -> ObjectStore:
    """Open the store that has the files of the checkpoint's stores, below `state/`. Raises
    StoreAccessError, and the errors of `state_place`."""
    place = state_place(checkpoint)
    return checkpoint if place is None else open_store(place.root)


@dataclass(frozen=True, slots=True)
class PlaceOpener:
    """Opens the place of a checkpoint's state, in any process. `storage_options`: for the
    checkpoint, and for a place of the same protocol. If the checkpoint is local, the options are
    for the place, because a local checkpoint has no use for options."""

    checkpoint_url: str = ""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    retry_seconds: float = RETRY_SECONDS

    def __call__(self, url: str) -> ObjectStore:
        """Open the store at `url`. Raises StoreAccessError."""
        ours = _protocol(self.checkpoint_url) in ("file", _protocol(url))
        store = open_object_store(url, self.storage_options if ours else None)
        return RetryingObjectStore(store, self.retry_seconds)


def _protocol(url: str) -> str:
    protocol, separator, _ = url.partition("://")
    return protocol if separator else "file"
