"""Writes a jar with only the Hadoop defaults for files on this machine.

Hadoop reads defaults from XML files in Hadoop's own jar, and takes the first file of each name on
Java's class path. For a setting without a default, Hadoop's code has a default at the place of the
read. Local files get classes of the tests. This module compiles the classes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pyspark

from spark_state.jvm.scala_compiler import compile_jar
from tests.support.sessions.java_options import FEW_DEFAULTS, LOCAL_FILES

SOURCES = Path(__file__).parent / "local_files"

NEEDED = (
    "file.",
    "fs.AbstractFileSystem.file.",
    "fs.automatic.close",
    "fs.defaultFS",
    "fs.file.",
    "fs.trash.",
    "hadoop.security.auth",
    "hadoop.security.group.mapping",
    "hadoop.tmp.dir",
    "hadoop.util.",
    "io.",
    "mapreduce.fileoutputcommitter.",
    "mapreduce.input.",
    "mapreduce.output.",
)


def default_files() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of defaults in Spark's Hadoop jars."""
    for jar in sorted(Path(pyspark.__path__[0], "jars").glob("hadoop-*.jar")):
        with zipfile.ZipFile(jar) as files:
            for name in files.namelist():
                if name.endswith("-default.xml"):
                    yield name, files.read(name)


OTHER_VALUES = {
    "fs.file.impl": "cowstate.tests.LocalFiles",
    "fs.AbstractFileSystem.file.impl": "cowstate.tests.LocalFilesOfContexts",
}


def only_needed(content: bytes) -> bytes:
    """The file with only the properties for tests, and with `OTHER_VALUES`."""
    configuration = ElementTree.fromstring(content)
    for entry in configuration.findall("property"):
        name = (entry.findtext("name") or "").strip()
        if not name.startswith(NEEDED):
            configuration.remove(entry)
        for value in entry.findall("value"):
            value.text = OTHER_VALUES.get(name, value.text)
    return ElementTree.tostring(configuration)


def write_few_defaults(jar: Path = FEW_DEFAULTS, classes: Path = LOCAL_FILES) -> None:
    """Write the jar of defaults, and the jar of the classes that the defaults name."""
    compile_jar(SOURCES.glob("*.scala"), classes)
    with zipfile.ZipFile(jar, "w") as files:
        for name, content in default_files():
            files.writestr(name, only_needed(content))
