"""Object stores for the state of queries on the provider: a directory, and S3 from moto."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from tests.support.provider.provider_jobs import STATE_STORE, Options
from tests.support.stores.moto_s3 import S3Server

STORE = f"{STATE_STORE}.cowstate.store"
STORE_OPTIONS = f"{STATE_STORE}.cowstate.storeOptions"
RETRY_SECONDS = f"{STATE_STORE}.cowstate.storeRetrySeconds"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store. `options` are for fsspec, without credentials. Credentials come from the
    environment."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Options:
        """The settings of a query that keeps its state in the store."""
        return {STORE: self.url, **self.access}

    @property
    def access(self) -> Options:
        """The settings of a query that finds the store's URL in its checkpoint."""
        return {STORE_OPTIONS: json.dumps(self.options)} if self.options else {}

    @property
    def objects(self) -> ObjectStore:
        """The objects in the store, for tests to inspect."""
        return open_object_store(self.url, self.readable)

    @property
    def readable(self) -> dict[str, Any]:
        """The options of a reader in the test process, whose environment has no credentials."""
        return {**self.options, "key": "test", "secret": "test"} if self.options else {}


def directory_store(folder: Path) -> StorePlace:
    return StorePlace(folder.as_uri())


def s3_store(server: S3Server) -> StorePlace:
    """A store in a bucket of its own."""
    options = {"endpoint_url": server.endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    return StorePlace(f"{server.new_bucket()}/states", options)
