"""Marks of tests that need a version of Spark."""

from __future__ import annotations

import pyspark
import pytest


def needs_spark_4_3(reason: str) -> pytest.MarkDecorator:
    """Skip the tests before Spark 4.3. `reason`: what Spark 4.2 lacks."""
    version = tuple(map(int, pyspark.__version__.split(".")[:2]))
    return pytest.mark.skipif(version < (4, 3), reason=reason)
