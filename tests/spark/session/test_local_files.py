"""The local-file classes of the test JVMs behave like Hadoop's classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.sessions.java_options import LOCAL_FILES

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    assert LOCAL_FILES.exists(), "make pytest compiles it"
    return spark._jvm


@pytest.fixture(params=["cowstate.tests.RawLocalFiles", "org.apache.hadoop.fs.RawLocalFileSystem"])
def file_system(spark: SparkSession, jvm: Any, request: pytest.FixtureRequest) -> Any:
    opened = (
        jvm.java.lang.Class.forName(request.param)
        .getConstructors()[0]
        .newInstance(spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 0))
    )
    opened.initialize(jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration())
    return opened


def test_permissions_are_set_and_read(jvm: Any, file_system: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    os.utime(file, (1_700_000_000, 1_700_000_001))
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    for mode in (0o644, 0o750, 0o003, 0o777, 0o421):
        permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:04o}")
        file_system.setPermission(path, permission)
        assert file.stat().st_mode & 0o777 == mode
        for status in (file_system.getFileStatus(path), file_system.getFileLinkStatus(path)):
            assert status.getPermission().equals(permission)
            assert (status.getLen(), status.isDirectory(), status.isSymlink()) == (5, False, False)
            assert status.getModificationTime() == 1_700_000_001_000
            assert status.getOwner() == file.owner()
            assert status.getGroup() == file.group()
            assert status.getPath().toString() == f"file:{file}"


def test_spark_uses_them(spark: SparkSession, jvm: Any, tmp_path: Path) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    opened = jvm.org.apache.hadoop.fs.Path(str(tmp_path)).getFileSystem(conf)
    assert opened.getClass().getName() == "cowstate.tests.LocalFiles"
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(conf).getDefaultFileSystem()
    assert context.getClass().getName() == "cowstate.tests.LocalFilesOfContexts"
