"""The partitions that complete an epoch run, and either the driver or a task looks for barriers."""

from __future__ import annotations

from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from spark_state.spark.queries.epoch_completion import (
    EpochCompletion,
    OperatorEpoch,
    partitions_to_run,
)
from spark_state.spark.session.batch_identity import BatchIdentity
from spark_state.spark.session.planned_operators import PlannedOperator

NOBODY = (0, 1, 2)


@pytest.mark.parametrize(
    ("missing", "partitions", "run"),
    [
        ([(1,)], 3, [1]),
        ([(0, 2)], 3, [0, 2]),
        ([(2,)], 5, [2]),
        ([(1, 2)], 2, [1]),
        ([(0,), (2,)], 3, [0, 2]),
        ([NOBODY], 3, [0, 1, 2]),
        ([NOBODY], 5, [0, 1, 2, 3, 4]),
        ([(), NOBODY], 2, [0, 1]),
        ([NOBODY], 0, []),
        ([(1,)], 0, []),
    ],
)
def test_the_partitions_of_missing_subtasks_are_run_or_all_if_an_operator_has_not_run(
    missing: list[tuple[int, ...]], partitions: int, run: list[int]
) -> None:
    assert partitions_to_run(missing, [3] * len(missing), partitions) == run


class FailingFileSystem(MemoryFileSystem):
    """A file system that fails with `error` unless `error` is None."""

    protocol = "failing"
    error: Exception | None = None

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().ls(path, detail, **options)


fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


@pytest.mark.parametrize(
    ("error", "looks_again"), [(TimeoutError("no answer"), True), (PermissionError("no"), False)]
)
def test_the_driver_looks_again_into_a_store_that_failed_it_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception, looks_again: bool
) -> None:
    operator = PlannedOperator("counts", "failing://states", 2, store_retry_seconds=1)
    epoch = OperatorEpoch(operator, BatchIdentity("query", "run", 0))
    completion = EpochCompletion((operator,))
    looks: list[str] = []
    monkeypatch.setattr(FailingFileSystem, "error", error)
    assert completion._missing_as_driver_sees(epoch) is None
    original = FailingFileSystem.ls
    monkeypatch.setattr(FailingFileSystem, "error", None)
    monkeypatch.setattr(
        FailingFileSystem, "ls", lambda *a, **k: (looks.append(a[1]), original(*a, **k))[1]
    )
    assert completion._missing_as_driver_sees(epoch) is None
    assert bool(looks) == looks_again
