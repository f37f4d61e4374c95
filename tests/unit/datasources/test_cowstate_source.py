"""The data source tells an error in the words of its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.errors import StateNotFoundError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from datasources.cowstate_source import CowStateDataSource
from tests.support.operators.keyed_operator import KeyedOperator


class OfTwoStates(KeyedOperator):
    """A KeyedOperator that declares a second state."""

    states = (*KeyedOperator.states, StateSchema("last", "value", "{}"))


def test_a_read_without_the_name_of_a_state_names_the_option(tmp_path: Path) -> None:
    OfTwoStates(LocalObjectStore(tmp_path), "run").run_epoch(0, {})
    source = CowStateDataSource({"path": str(tmp_path)})
    with pytest.raises(StateNotFoundError, match=r"are count, last\. Name one with"):
        source.schema()
