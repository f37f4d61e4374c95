"""The files of a checkpoint, on any file system that Spark reaches.

All access goes through Hadoop's FileSystem API in the JVM of a session, with the session's
configuration. So this module can read and edit every location that a query can use as its
checkpointLocation. Paths are relative to the checkpoint.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from checkpoint_store.interface_words import words
from spark_state.errors import ConfigurationError
from spark_state.spark.session.hadoop_files import HadoopFiles
from spark_state.spark.session.session_facts import settings_of

_PROVIDER_PACKAGE = "org.apache.spark.sql.execution.streaming.state.cowstate"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
_MANAGER = f"{_CHECKPOINTING}.CheckpointFileManager"
_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
# This manager renames files. In most file systems a rename does not replace a file.
_RENAMING_MANAGER = f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file in a listing. `changed_ms`: the time of the last change, by the file system's
    clock."""

    path: str
    length: int
    changed_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


class CheckpointFiles(HadoopFiles):
    """Reads and edits the files of one checkpoint. Raises ConfigurationError when the file system
    cannot be used."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        try:
            super().__init__(spark, location)
        except Py4JJavaError as error:
            raise ConfigurationError(
                f"{location} cannot be opened: {error.java_exception.getMessage()}. "
                f"{words().set_for_spark} what its file system needs (spark.hadoop.…)"
            ) from error
        self._session = spark._jsparkSession

    def settings(self) -> dict[str, str]:
        return settings_of(self._session)

    def url_of(self, path: str) -> str:
        return f"{self.url}/{path}"

    def below(self, folder: str) -> list[CheckpointFile]:
        """The files at any depth below `folder`; empty if the folder does not exist."""
        conversion = self._class("jobs.StateConversion")
        text: str = conversion.listFiles(self._session, self.url_of(folder))
        files = []
        for line in text.splitlines():
            length, changed, name = line.split("\t", 2)
            files.append(CheckpointFile(f"{folder}/{name}", int(length), int(changed)))
        return sorted(files, key=lambda file: file.path)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in `folder`, in order."""
        if not self.exists(folder):
            return []
        entries = self._files.listStatus(self._path(folder))
        return sorted(str(entry.getPath().getName()) for entry in entries if entry.isDirectory())

    def create_text(self, path: str, text: str) -> bool:
        """Create a whole file, as Spark creates an entry of a log. Return False if the file
        exists."""
        target = self._path(path)
        manager = getattr(self._jvm, _MANAGER).create(self._folder, self._conf)
        if manager.exists(target):
            return False
        out = manager.createAtomic(target, False)
        try:
            out.write(text.encode())
            out.close()
        except Py4JJavaError as error:
            out.cancel()
            if "FileAlreadyExists" not in error.java_exception.getClass().getName():
                raise
            return False
        return True

    def write_text(self, path: str, text: str) -> None:
        """Write a file, whole or not at all. Replaces an existing file. First removes the checksum
        file that Hadoop's local file system has for the old file. Raises ConfigurationError if the
        checkpoint's file manager does not replace files."""
        target = self._path(path)
        conf = self._conf
        if conf.get(_MANAGER_KEY) == _RENAMING_MANAGER:
            conf = self._jvm.org.apache.hadoop.conf.Configuration(conf)
            conf.unset(_MANAGER_KEY)
        manager = getattr(self._jvm, _MANAGER).create(self._folder, conf)
        parent = target.getParent()
        self._files.mkdirs(parent)
        checksum = self._jvm.org.apache.hadoop.fs.Path(parent, f".{target.getName()}.crc")
        self._files.delete(checksum, False)
        out = manager.createAtomic(target, True)
        try:
            out.write(text.encode())
        except BaseException:
            out.cancel()
            raise
        out.close()
        if self.read_text(path) != text:
            raise ConfigurationError(
                f"{self.url_of(path)} was not replaced: {manager.getClass().getName()} does not do "
                f"that here. {words().set_for_spark} {_MANAGER_KEY}: a manager that does"
            )

    def unfinished(self, path: str) -> list[str]:
        """The paths of the hidden files that killed calls of `write_text` for this file have left.
        Spark's file managers write to a hidden file in the same folder, with an id in its name, and
        rename the hidden file at the end."""
        folder, _, name = path.rpartition("/")
        unfinished = re.compile(rf"\.{re.escape(name)}\.[0-9a-f-]{{36}}(?:\.TID\d+)?\.tmp")
        return [f"{folder}/{each}" for each in self.names(folder) if unfinished.fullmatch(each)]

    def copy(self, source: str, target: str) -> None:
        """Copy a file, replacing any file at `target`."""
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        files = self._files
        if not copy(files, self._path(source), files, self._path(target), False, True, self._conf):
            raise OSError(f"{self.url_of(source)} could not be copied to {self.url_of(target)}")

    def move(self, source_url: str, path: str) -> None:
        """Move a file, given by its URL, to a path without a file."""
        source = self._jvm.org.apache.hadoop.fs.Path(source_url)
        if self.exists(path) or not self._files.rename(source, self._path(path)):
            raise OSError(f"{source_url} could not be moved to {self.url_of(path)}")

    def move_back(self, source: str, target: str) -> None:
        """Move a folder back to its former place. Safe to call again.

        A file system without atomic renames copies the files of a folder and then deletes the
        originals. So a killed call of `move` or `move_back` leaves some files in both folders, and
        some files in only one of the folders. Of two copies of a file, the longer copy is whole.
        """
        if not self.exists(source):
            return
        if not self.exists(target):
            self.move(self.url_of(source), target)
            return
        lengths = {file.path: file.length for file in self.below(target)}
        for file in self.below(source):
            path = target + file.path.removeprefix(source)
            if path in lengths and lengths[path] >= file.length:
                continue
            self.delete(path)
            self._files.mkdirs(self._path(path).getParent())
            self.move(self.url_of(file.path), path)
        self.delete(source)

    def relative(self, url: str) -> str:
        """The path of a file below the checkpoint, given by its URL."""
        path = self._files.makeQualified(self._jvm.org.apache.hadoop.fs.Path(url))
        return str(path.toString()).removeprefix(f"{self.url}/")

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content, if it exists."""
        self._files.delete(self._path(path), True)

    def start_conversion(self, order: dict[str, Any]) -> Any:
        """Start the Spark job of the JVM's StateConversion, and return the running job."""
        return self._class("jobs.StateConversion").start(self._session, json.dumps(order))

    def partitionings(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        """The key columns that decide the partition of a row, for each store in `order`. `order`:
        the stores to rescale, see rescale."""
        rescaling = self._class("jobs.StateRescaling")
        text: str = rescaling.partitionings(self._session, json.dumps(order))
        partitionings: list[dict[str, Any]] = json.loads(text)
        return partitionings

    def start_rescaling(self, order: dict[str, Any]) -> Any:
        """Start the Spark job of the JVM's StateRescaling, and return the running job."""
        return self._class("jobs.StateRescaling").start(self._session, json.dumps(order))

    def discard_rescaled(self, order: dict[str, Any]) -> None:
        """Delete the files that a rescale has written for its new partitions."""
        self._class("jobs.StateRescaling").discard(self._session, json.dumps(order))

    def check_store_options(self, options: str) -> None:
        """Raise ConfigurationError unless the text is a JSON object of options for an object store,
        without credentials."""
        try:
            self._class("base.StoreSettings").checkOptions(options)
        except IllegalArgumentException as error:
            # After the first line, PySpark may show the stack of the JVM.
            raise ConfigurationError(str(error).partition("\n")[0]) from error

    def _class(self, name: str) -> Any:
        jvm_class = getattr(self._jvm, f"{_PROVIDER_PACKAGE}.{name}")
        if isinstance(jvm_class, JavaPackage):
            raise ConfigurationError(
                "the running Spark session does not have the provider's jar: build the session "
                "with spark_state.configure(SparkSession.builder)"
            )
        return jvm_class
