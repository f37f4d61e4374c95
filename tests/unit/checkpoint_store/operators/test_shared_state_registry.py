"""Reference counts of state files."""

from __future__ import annotations

import pytest

from checkpoint_store.operators.shared_state_registry import SharedStateRegistry


def test_a_file_is_unused_with_its_last_user() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", ["a", "b"])
    registry.register("checkpoint 2", ["b", "c"])
    registry.check_invariants()
    assert registry.unregister("checkpoint 1") == {"a"}
    registry.check_invariants()
    assert registry.unregister("checkpoint 2") == {"b", "c"}
    registry.check_invariants()
    assert registry.checkpoints() == frozenset()


def test_a_name_given_twice_counts_once() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", ["a", "a"])
    registry.check_invariants()
    assert registry.unregister("checkpoint 1") == {"a"}


def test_a_checkpoint_is_registered_once() -> None:
    registry = SharedStateRegistry()
    registry.register("checkpoint 1", ["a"])
    assert "checkpoint 1" in registry
    with pytest.raises(AssertionError, match="registered already"):
        registry.register("checkpoint 1", ["b"])


def test_an_unknown_checkpoint_is_not_unregistered() -> None:
    with pytest.raises(KeyError):
        SharedStateRegistry().unregister("checkpoint 1")
