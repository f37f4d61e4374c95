"""Reads files of a folder on the driver, through the file systems that Spark uses."""

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
        """The names in a subfolder; empty if the subfolder does not exist."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return [str(entry.getPath().getName()) for entry in self._files.listStatus(path)]

    def numbers(self, folder: str) -> list[int]:
        """The entries of a Spark log: the names in a subfolder that are whole numbers."""
        return [int(name) for name in self.names(folder) if name.isdecimal()]

    def text(self, name: str) -> str | None:
        """The text of a file in the folder; None if the file does not exist."""
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
