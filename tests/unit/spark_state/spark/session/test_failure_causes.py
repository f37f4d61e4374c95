"""The text of Spark's exceptions gives the line with the cause of a failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version

import pytest

from spark_state.spark.session.failure_causes import cause_of_query, own_error_in

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
PLAN = " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nLogical Plan:\nValueError: no"
OF_WORKER = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
TRACEBACK = 'Traceback (most recent call last):\n  File "job.py", line 1, in run\n    run()\n'
IN_HOST = f"\n\nIn the state host:\n{TRACEBACK}TypeError: in the host\n"
ATTEMPTS = (
    "Job aborted due to stage failure: Task 1 in stage 9.0 failed 4 times, most recent failure: "
    "Lost task 1.3 in stage 9.0 (TID 7) (10.0.0.1 executor 2): "
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{OF_WORKER}{TRACEBACK}ValueError: a is negative\nsecond line{IN_HOST}{PLAN}", "ValueErr"
         "or: a is negative"),
        (f"{OF_WORKER}{TRACEBACK}spark_state.errors.StateValueError: v is 'x'{IN_HOST}{PLAN}",
         "StateValueError: v is 'x'"),
        (f"{TRACEBACK}KeyError: 1\n\nThe above exception was the direct cause of the following "
         f"exception:\n\n{TRACEBACK}my.module.OrderError: no order{PLAN}", "OrderError: no order"),
        (f"{TRACEBACK}StopError{PLAN}".replace(" SQLSTATE", "\n SQLSTATE", 1), "StopError"),
        (f"[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] a/1.arrow is damaged: 1 byte{PLAN}",
         "a/1.arrow is damaged: 1 byte"),
        (f"{ATTEMPTS}java.lang.IllegalStateException: no disk\n\tat a.b.C(C.scala:1){PLAN}",
         "IllegalStateException: no disk"),
        (f"{ATTEMPTS}org.apache.spark.api.python.PythonException: {TRACEBACK}OSError: full\n\tat "
         f"x{PLAN}", "OSError: full"),
    ],
)  # fmt: skip
def test_the_cause_of_a_query_is_the_error_that_made_it_fail(text: str, cause: str) -> None:
    assert cause_of_query(FAILED + text) == cause
    assert cause_of_query(text) == cause


def test_a_changed_number_of_sources_has_its_reason_in_cowstate_which_comes_first() -> None:
    spark_text = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
        "sources requested by the query. Cannot continue."
    )
    cause = cause_of_query(f"{FAILED}{spark_text}{PLAN}")
    assert cause is not None
    assert re.match(r"the query has 2 sources, and had 1 .* go back to the former timeMode", cause)


def test_only_errors_of_cowstate_are_shown_first_outside_of_queries() -> None:
    own = f"Failed to create: {TRACEBACK}datasources.errors.TableOptionError: no option"
    assert own_error_in(f"{own}\n\nJVM stacktrace:\n{TRACEBACK}OSError: x") == (
        "TableOptionError: no option"
    )
    assert own_error_in(f"Failed: {TRACEBACK}ValueError: theirs") is None
    assert own_error_in("[TABLE_OR_VIEW_NOT_FOUND] no table") is None


@pytest.mark.parametrize("cause_of", [cause_of_query, own_error_in])
def test_a_package_that_an_executor_lacks_comes_with_the_command(
    cause_of: Callable[[str], str | None],
) -> None:
    lacking = f"{OF_WORKER}{TRACEBACK}ModuleNotFoundError: No module named 'pyarrow'{PLAN}"
    cause = cause_of(lacking)
    assert cause is not None
    assert cause.startswith("No module named 'pyarrow': the Python of an executor lacks")
    assert f"Run `pip install cowstate=={version('cowstate')}` for it" in cause
    # A module that only the processor imports is the user's own.
    other = cause_of(lacking.replace("pyarrow", "orders"))
    assert other in (None, "ModuleNotFoundError: No module named 'orders'")
