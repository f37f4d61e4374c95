"""Reads files of a folder on the driver, by the file systems that Spark itself uses."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below a folder. `url`: the folder's location, with its file system."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm = cast(Any, spark._jvm)
        path = self._jvm.org.apache.hadoop.fs.Path(location)
        self._files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._folder = self._files.makeQualified(path)
        self.url = str(self._folder.toString())

    def names(self, folder: str) -> list[str]:
        """The names in a folder below; none if it does not exist."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return [str(entry.getPath().getName()) for entry in self._files.listStatus(path)]

    def numbers(self, folder: str) -> list[int]:
        """The entries of a log of Spark: the names in a folder below that are whole numbers."""
        return [int(name) for name in self.names(folder) if name.isdecimal()]

    def text(self, name: str) -> str | None:
        """The text of a file below; None if it does not exist."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)
