"""The options of a read of `format("statestore")` that asks for changes. Pure.

Options that Spark's own reader refuses raise an error with Spark's condition.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_state.processor.condition_errors import StateReadOptionError

_FEED, _FIRST, _LAST = "readChangeFeed", "changeStartBatchId", "changeEndBatchId"
_OTHER_READS = ("batchId", "joinSide", "snapshotStartBatchId", "snapshotPartitionId")


def first_batch_of_changes(given: Mapping[str, str]) -> int | None:
    """The first batch whose changes are asked for; None for a read of the state. `given`: the
    options by name in lower case. Raises StateReadOptionError."""
    if given.get(_FEED.lower(), "false").lower() != "true":
        for name in (_FIRST, _LAST):
            if name.lower() in given:
                raise _wrong(name, f"Only specify this option when {_FEED} is set to true.")
        return None
    for name in _OTHER_READS:
        if name.lower() in given:
            raise StateReadOptionError(
                "STDS_CONFLICT_OPTIONS",
                "42613",
                f"The options ['{name}', '{_FEED}'] cannot be specified together. Please specify "
                "the one.",
                {"options": f"['{name}', '{_FEED}']"},
            )
    if _FIRST.lower() not in given:
        raise StateReadOptionError(
            "STDS_REQUIRED_OPTION_UNSPECIFIED",
            "42601",
            f"'{_FIRST}' must be specified.",
            {"optionName": _FIRST},
        )
    first = int(given[_FIRST.lower()])
    if first < 0:
        raise StateReadOptionError(
            "STDS_INVALID_OPTION_VALUE.IS_NEGATIVE",
            "42616",
            f"Invalid value for source option '{_FIRST}': cannot be negative.",
            {"optionName": _FIRST},
        )
    return first


def check_last_batch_of_changes(first: int, last: int, newest: int, checkpoint: str) -> None:
    """Raise StateReadOptionError unless `first` <= `last` <= `newest`. `newest`: the last committed
    batch."""
    if last < first:
        raise _wrong(
            _LAST,
            f"{_LAST} cannot be smaller than {_FIRST}. Please check the input to {_LAST}, or if "
            f"you are using its default value, make sure that {_FIRST} is less than {last}.",
        )
    if last > newest:
        raise StateReadOptionError(
            "STDS_COMMITTED_BATCH_UNAVAILABLE",
            "KD006",
            f"No committed batch found, checkpoint location: {checkpoint}. Ensure that the query "
            f"has run and committed any microbatch before stopping. The newest batch is {newest}, "
            f"and {last} is asked for.",
            {"checkpointLocation": checkpoint},
        )


def _wrong(name: str, why: str) -> StateReadOptionError:
    return StateReadOptionError(
        "STDS_INVALID_OPTION_VALUE.WITH_MESSAGE",
        "42616",
        f"Invalid value for source option '{name}': {why}",
        {"optionName": name, "message": why},
    )
