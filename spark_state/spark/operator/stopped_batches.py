"""Lets a query that is stopped while its `foreachBatch` function runs end as a stopped one.

The function's action is interrupted, and Py4J hands what it raises to Spark as text: a Python
traceback with the whole stack of the JVM. Spark looks for the word of an interruption in it with a
regular expression that takes a piece of the thread's stack for each character, so that of a text of
two thousand or more it prints a StackOverflowError of 1,024 lines instead of finding the word. Here
the text is a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql.streaming.query import StreamingQuery

# As Spark's StreamExecution tells interruptions.
_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_CANCELLED = "SPARK_JOB_CANCELLED"
_FIRST_WORDS = "py4j.protocol.Py4JJavaError: An error occurred while calling a Java method: "
_MOST_CHARACTERS = 400


@contextmanager
def brief_when_stopped(query: StreamingQuery | None) -> Iterator[None]:
    """In here errors are brief that come from an interruption, if `query` is being stopped. While
    it runs they come whole: somebody has cancelled a job of it, or a client was interrupted."""
    try:
        yield
    except Exception as error:
        # Spark says that a query is not active before it interrupts its thread.
        is_stopped = query is not None and not query.isActive
        interruption = next(_interruptions(error), None) if is_stopped else None
        if interruption is None:
            raise
        # Py4J would add the text of the errors that this one comes from.
        raise InterruptedError(_FIRST_WORDS + interruption[:_MOST_CHARACTERS]) from None


def _interruptions(error: BaseException) -> Iterator[str]:
    """What the interruptions among an error and those that it comes from say, in a line each."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, Py4JJavaError):
            yield from _interruptions_in_jvm(at.java_exception)
        at = at.__cause__ or at.__context__


def _interruptions_in_jvm(error: Any) -> Iterator[str]:
    while error is not None:
        line = str(error.toString()).partition("\n")[0]
        if line.startswith(_INTERRUPTIONS) or _CANCELLED in line:
            yield line
        error = error.getCause()
