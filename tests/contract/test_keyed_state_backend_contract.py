"""The contract of keyed state backends, run against each backend."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.codec import Forms
from spark_state.heap import heap_keyed_state_backend
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.rocksdb.local_copies import DatabaseHome
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from tests.support.operators.keyed_state_backend_contract import (
    KeyedStateBackendContract,
    NewBackend,
)


class TestRocksDBKeyedStateBackend(KeyedStateBackendContract):
    """State on the local disk."""

    @pytest.fixture
    def new_backend(self, tmp_path: Path) -> NewBackend:
        folders = (tmp_path / str(number) for number in count())

        def new(
            key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms
        ) -> RocksDBKeyedStateBackend:
            home = DatabaseHome(next(folders))
            return RocksDBKeyedStateBackend(key_groups, key_columns, forms, home)

        return new


class TestHeapKeyedStateBackend(KeyedStateBackendContract):
    """State as Python objects."""

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        return HeapKeyedStateBackend


class TestPackedHeapKeyedStateBackend(TestHeapKeyedStateBackend):
    """State as Python objects, and as rows of a snapshot until the first use."""

    @pytest.fixture(autouse=True)
    def packs_all_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heap_keyed_state_backend, "LEAST_PACKED_ROWS", 0)
