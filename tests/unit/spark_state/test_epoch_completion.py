"""Which partitions of a batch are run so that the subtasks that have not run do."""

from __future__ import annotations

import pytest

from spark_state.spark.epoch_completion import partitions_to_run

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
