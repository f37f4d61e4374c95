"""The registry knows the last epoch that uses each state file."""

from __future__ import annotations

import pytest

from checkpoint_store.operators.shared_state_registry import SharedStateRegistry


def test_a_file_is_unused_with_its_last_user() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", 1, ["a", "b"])
    registry.register("checkpoint 2", 2, ["b", "c"])
    assert registry.unregister_before(1) == frozenset()
    assert registry.unregister_before(2) == {"a"}
    assert "checkpoint 1" not in registry
    assert registry.unregister_before(3) == {"b", "c"}
    assert registry.unregister_before(3) == frozenset()


def test_checkpoints_may_be_registered_in_any_order() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 3", 3, ["a"])
    registry.register("checkpoint 1", 1, ["a", "b", "b"])
    registry.register("another checkpoint 1", 1, ["c"])
    assert registry.unregister_before(2) == {"b", "c"}
    assert "checkpoint 3" in registry
    assert registry.unregister_before(4) == {"a"}


def test_a_file_that_is_named_again_after_a_gap_is_used_in_between() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", 1, ["a"])
    registry.register("checkpoint 2", 2, [])
    registry.register("checkpoint 3", 3, ["a"])
    assert registry.unregister_before(2) == frozenset()


def test_a_checkpoint_is_registered_once() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", 1, ["a"])
    assert "checkpoint 1" in registry
    with pytest.raises(AssertionError, match="registered already"):
        registry.register("checkpoint 1", 1, ["b"])
