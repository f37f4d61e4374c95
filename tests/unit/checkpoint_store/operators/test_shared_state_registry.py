"""The registry knows the last epoch that uses each state file."""

from __future__ import annotations

import pytest

from checkpoint_store.operators.shared_state_registry import SharedStateRegistry


def test_a_checkpoint_is_registered_once() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", 1, ["a"])
    assert "checkpoint 1" in registry
    with pytest.raises(AssertionError, match="registered already"):
        registry.register("checkpoint 1", 1, ["b"])
