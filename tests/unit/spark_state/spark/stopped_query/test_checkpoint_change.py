"""A change that is killed or meets another change leaves the former state or the new state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.adoption.adoption import AdoptionTarget, ProviderAdoption
from spark_state.spark.adoption.adoption_plan import HDFS_CLASS
from spark_state.spark.provider.provider_class import PROVIDER_CLASS
from spark_state.spark.stopped_query.checkpoint_change import AppliedChange, apply, revert
from tests.support.provider.checkpoint_on_disk import FilesOnDisk, QueryOnDisk
from tests.support.provider.stopped_changes import StoppedError


def adopt(query: QueryOnDisk, to: str = "cowstate", store: str | None = None) -> AppliedChange:
    target = AdoptionTarget(to, store)
    return apply(ProviderAdoption(), query.files, target, lambda *_: None, force=True)


def undo(query: QueryOnDisk) -> None:
    revert(ProviderAdoption(), query.files, force=True)


def killed(query: QueryOnDisk, writes: int, command: Callable[[], object]) -> bool:
    """Run a command that is killed after some writes. Return False if the command was faster."""
    left = writes

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError

    query.files.before_write = count
    try:
        command()
    except StoppedError:
        return True
    finally:
        query.files = FilesOnDisk(query.folder)
    return False


def test_a_query_that_ran_its_open_batch_after_a_kill_can_be_adopted_again(tmp_path: Path) -> None:
    writes = 0
    while True:
        query = QueryOnDisk(tmp_path / str(writes))
        query.plan(2, HDFS_CLASS)
        if not killed(query, writes, lambda query=query: adopt(query)):  # type: ignore[misc]
            break
        writes += 1
        if query.provider() == PROVIDER_CLASS:
            continue
        query.commit(2)
        try:
            adopt(query)
        except ConfigurationError as error:
            assert "undo it first" in str(error)
            undo(query)
            adopt(query)
        assert query.provider() == PROVIDER_CLASS
    assert writes > 3
