"""Fixtures of tests with a Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from tests.support.applications import streams
from tests.support.applications.streams import Stream
from tests.support.provider.adoption_jobs import first_segments, uninterrupted
from tests.support.sessions.spark_session import CREDENTIALS
from tests.support.stores.moto_s3 import S3Server, moto_s3
from tests.support.tables.table_jobs import Upserts

__all__ = ["first_segments", "uninterrupted"]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """A stream without rows."""
    return Stream(spark, tmp_path)


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    """The enabled session. The configuration is restored at the end."""
    with streams.enabled(spark):
        yield spark


@pytest.fixture
def upserts(spark: SparkSession, tmp_path: Path) -> Upserts:
    """A query into a table, without rows."""
    return Upserts(spark, tmp_path)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A server of S3, with its credentials in the environment."""
    with mock.patch.dict(os.environ, CREDENTIALS), moto_s3() as server:
        yield server
