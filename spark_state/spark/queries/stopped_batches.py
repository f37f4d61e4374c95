"""Lets a query end without an error if it is stopped while its `foreachBatch` function runs.

The stop interrupts the function's action, and Py4J passes the error to Spark as text: a Python
traceback with the whole stack of the JVM. Spark searches the text for the name of an interruption,
with a regular expression that uses a piece of the thread's stack for each character. If the text
has two thousand characters or more, Spark prints a StackOverflowError of 1,024 lines instead. This
module makes the text a single line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql.streaming.query import StreamingQuery

# The names by which Spark's StreamExecution recognizes interruptions.
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
    """Shorten the error of an interruption to one line, if `query` is being stopped. If the query
    is not being stopped, the error has another reason, such as a cancelled job, and stays whole."""
    try:
        yield
    except Exception as error:
        # Spark marks a query as not active before it interrupts the query's thread.
        is_stopped = query is not None and not query.isActive
        interruption = next(_interruptions(error), None) if is_stopped else None
        if interruption is None:
            raise
        # `from None`, because Py4J would add the text of the causes.
        raise InterruptedError(_FIRST_WORDS + interruption[:_MOST_CHARACTERS]) from None


def _interruptions(error: BaseException) -> Iterator[str]:
    """The interruptions among an error and its causes, each as a single line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Py4JJavaError):
            yield from _interruptions_in_jvm(cause.java_exception)
        cause = cause.__cause__ or cause.__context__


def _interruptions_in_jvm(error: Any) -> Iterator[str]:
    while error is not None:
        line = str(error.toString()).partition("\n")[0]
        if line.startswith(_INTERRUPTIONS) or _CANCELLED in line:
            yield line
        error = error.getCause()
