"""Spark's published test jars, Spark itself in the same version, and jars compiled against them.

build/spark-suites/
  jars/                      the jars of the lock file, from Maven Central
  spark-<version>/           PySpark without its requirements, from PyPI: Spark's own jars
  classes-<version>/         the tests of spark-sql, unpacked: suites open their resources as files
  <name>-<checksum>.jar      compiled from sources of this tree
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cowstate.pinned_jars import REPOSITORY, download, locked, pinned_jars, sha256
from scripts.spark_of_pypi import spark_of_pypi
from spark_state.jvm.scala_compiler import compile_jar

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "spark-suites"
JARS = BUILD / "jars"
SQL_TESTS = "spark-sql_2.13"


@dataclass(frozen=True, slots=True)
class SparkBuild:
    """A version of Spark with its tests, ready to run. `jars`: the jars downloaded for the
    tests."""

    version: str
    spark_jars: Path
    test_classes: Path
    jars: Sequence[Path]

    @property
    def libraries(self) -> list[Path]:
        """The jars, without the jar of spark-sql's tests, which is unpacked."""
        return [jar for jar in self.jars if not is_of_sql_tests(jar)]

    def classpath(self, first: Sequence[Path]) -> list[str]:
        """The class path: the jars in `first`, then the tests, then Spark."""
        own = map(str, [*first, self.test_classes, *self.libraries])
        return [*own, str(self.spark_jars / "*")]


def lock_of(version: str) -> Path:
    """The lock file of a version's test jars."""
    return HERE / f"jars-{version}.sha256"


def locked_versions() -> list[str]:
    """The versions that have a lock file, the newest last."""
    locks = HERE.glob("jars-*.sha256")
    names = (path.name.removeprefix("jars-").removesuffix(".sha256") for path in locks)
    return sorted(names, key=lambda version: [*map(int, version.split("."))])


def lock(version: str) -> Path:
    """Pin the test jars of another version of Spark, with the libraries that are pinned for the
    newest version. Return the lock file."""
    newest = locked_versions()[-1]
    lines = []
    for _, path in locked(lock_of(newest)):
        renamed = path.replace(newest, version) if "/apache/spark/" in path else path
        jar = JARS / Path(renamed).name
        if not jar.exists():
            download(f"{REPOSITORY}/{renamed}", jar)
        lines.append(f"{sha256(jar)}  {renamed}\n")
    written = lock_of(version)
    written.write_text(f"# The test jars of Spark {version}, and what they need.\n{''.join(lines)}")
    return written


def prepare(version: str) -> SparkBuild:
    """Download and unpack missing files."""
    jars = pinned_jars(lock_of(version), JARS)
    (sql_tests,) = filter(is_of_sql_tests, jars)
    spark_jars = spark_of_pypi(version, BUILD / f"spark-{version}")
    classes = BUILD / f"classes-{version}"
    if not classes.exists():
        unpack(sql_tests, classes)
    return SparkBuild(version, spark_jars, classes, jars)


def is_of_sql_tests(jar: Path) -> bool:
    """True if the jar is the jar of the SQL tests, which has the suites."""
    return jar.name.startswith(f"{SQL_TESTS}-")


def unpack(jar: Path, folder: Path) -> None:
    """Unpack a jar. The folder is whole or does not exist."""
    unfinished = folder.with_name(f".{folder.name}")
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(unfinished)
    unfinished.replace(folder)


def compiled(name: str, folder: Path, build: SparkBuild | None, beside: Sequence[Path]) -> Path:
    """Compile the sources in a folder against a Spark and its tests, or, without `build`, against
    the installed Spark. `beside`: further jars that the sources need. The same sources are compiled
    once."""
    sources = sorted(folder.rglob("*.scala"))
    content = hashlib.sha256((build.version if build else "").encode())
    for file in [*sources, *beside]:
        content.update(file.read_bytes())
    jar = BUILD / f"{name}-{content.hexdigest()[:12]}.jar"
    if not jar.exists():
        tests = [build.test_classes, *build.libraries] if build else []
        compile_jar(sources, jar, [*beside, *tests], jars=build.spark_jars if build else None)
    return jar
