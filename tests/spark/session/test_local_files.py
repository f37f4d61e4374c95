"""The local-file classes of the test JVMs behave like Hadoop's classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
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


def test_folders_and_their_files_are_listed(jvm: Any, file_system: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "file").touch(mode=0o640)
    listed = file_system.listStatus(jvm.org.apache.hadoop.fs.Path(str(tmp_path)))
    shown = {
        status.getPath().getName(): (status.isDirectory(), status.getPermission().toShort())
        for status in listed
    }
    assert shown == {"folder": (True, 0o700), "file": (False, 0o640)}


def test_a_link_is_told_from_its_file(jvm: Any, file_system: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "link"))
    assert file_system.getFileLinkStatus(path).isSymlink()
    assert file_system.getFileStatus(path).getLen() == 5


def test_a_missing_file_is_an_error_that_names_it(
    jvm: Any, file_system: Any, tmp_path: Path
) -> None:
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "missing"))
    for look in (file_system.getFileStatus, file_system.getFileLinkStatus):
        with pytest.raises(Py4JJavaError, match=r"FileNotFoundException: .*missing"):
            look(path)


def test_spark_uses_them(spark: SparkSession, jvm: Any, tmp_path: Path) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    opened = jvm.org.apache.hadoop.fs.Path(str(tmp_path)).getFileSystem(conf)
    assert opened.getClass().getName() == "cowstate.tests.LocalFiles"
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(conf).getDefaultFileSystem()
    assert context.getClass().getName() == "cowstate.tests.LocalFilesOfContexts"
