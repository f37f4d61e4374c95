"""Pickles of processors, requests and errors. Objects that the reading process cannot import are
pickled by value."""

from __future__ import annotations

import io
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.accumulators import Accumulator
from pyspark.core.broadcast import Broadcast

from spark_state.errors import UnsupportedOperationError


def dumps(value: Any) -> bytes:
    """Return the cloudpickle of `value`, which `pickle.loads` reads."""
    return cast(bytes, cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def dumps_processor(processor: Any) -> bytes:
    """Return the cloudpickle of a processor. Raises UnsupportedOperationError if the processor uses
    a broadcast variable or an accumulator, because both work only in a worker of Spark."""
    file = io.BytesIO()
    _ProcessorPickler(file).dump(processor)  # type: ignore[no-untyped-call]
    return file.getvalue()


class _ProcessorPickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Broadcast):
            raise UnsupportedOperationError(
                "the processor uses a broadcast variable, which does not reach the state host; "
                "give it the value itself (broadcast.value), or read the value in init"
            )
        if isinstance(obj, Accumulator):
            raise UnsupportedOperationError(
                "the processor uses an accumulator, which counts in workers of Spark only; count "
                "in the operator's output, or in a state"
            )
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
