"""Pickles of processors, requests and errors: by value what the other process cannot import."""

from __future__ import annotations

from typing import Any, cast

from pyspark import cloudpickle


def dumps(value: Any) -> bytes:
    """The cloudpickle of `value`, which `pickle.loads` reads."""
    return cast(bytes, cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
