"""The empty store of tests."""

from __future__ import annotations

import pytest

from tests.support.stores.fake_object_store import DictObjectStore


@pytest.fixture
def objects() -> DictObjectStore:
    return DictObjectStore()
