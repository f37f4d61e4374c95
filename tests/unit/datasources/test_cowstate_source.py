"""The data source tells an error in the words of its options, and remembers the version."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSourceReader

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


def test_all_scans_of_a_dataframe_read_the_version_of_its_schema(tmp_path: Path) -> None:
    operator = KeyedOperator(LocalObjectStore(tmp_path), "run")
    operator.run_epoch(0, {0: 1})
    source = CowStateDataSource({"path": str(tmp_path)})
    schema = source.schema()
    operator.run_epoch(1, {0: 1, 5: 1})
    copy = pickle.loads(pickle.dumps(source))
    assert _rows(copy.reader(schema)) == _rows(copy.reader(schema)) == 1
    assert _rows(CowStateDataSource({"path": str(tmp_path)}).reader(schema)) == 2


def _rows(reader: DataSourceReader) -> int:
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
