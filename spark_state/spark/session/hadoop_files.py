"""Reads files of a folder on the driver, through the file systems that Spark uses."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below a folder. `url`: the folder's location, with its file system."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        path = self._jvm.org.apache.hadoop.fs.Path(location)
        self._files = path.getFileSystem(self._conf)
        self._folder = self._files.makeQualified(path)
        self.url = str(self._folder.toString())

    def exists(self, name: str = "") -> bool:
        """Return True if a file or subfolder exists; without a name, if the folder exists."""
        return bool(self._files.exists(self._path(name) if name else self._folder))

    def names(self, folder: str) -> list[str]:
        """The names in a subfolder; empty if the subfolder does not exist."""
        if not self.exists(folder):
            return []
        entries = self._files.listStatus(self._path(folder))
        return [str(entry.getPath().getName()) for entry in entries]

    def numbers(self, folder: str) -> list[int]:
        """The entries of a Spark log: the names in a subfolder that are whole numbers."""
        return [int(name) for name in self.names(folder) if name.isdecimal()]

    def text(self, name: str) -> str | None:
        """The text of a file in the folder; None if the file does not exist."""
        return self.read_text(name) if self.exists(name) else None

    def read_text(self, name: str) -> str:
        """The text of a file that exists."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)
