"""What every backend of keyed state promises, run against each of them."""

from __future__ import annotations

import pytest

from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.testing import KeyedStateBackendContract
from spark_state.testing.keyed_state_backend_contract import NewBackend


class TestHeapKeyedStateBackend(KeyedStateBackendContract):
    """State as Python objects."""

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        return HeapKeyedStateBackend
