"""Scripts for the provider's classes, run in the JVM of the shared session.

A script is a list of lines, sent in one call. Each line gives one line of result.
`tests/support/provider/scala` defines the lines, and is compiled again after a change of this
folder or of the provider.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import pyspark
import pytest
from pyspark.sql import SparkSession

import spark_state
from spark_state.jvm.scala_compiler import compile_jar

SCRIPTS = "org.apache.spark.sql.execution.streaming.state.cowstate.scripts"
SOURCES = Path(__file__).parent / "scala"
BUILD = Path(__file__).resolve().parents[3] / "build"
STEP = 0x9E3779B97F4A7C15
WORD_BYTES = 8
# The rows of scripts are bytes with their seed, not values of a schema.
START = (
    "start stateStore.coordinatorReportSnapshotUploadLag=false "
    "stateStore.formatValidation.enabled=false"
)
Tasks = Callable[..., list[str]]


@dataclass(frozen=True, slots=True)
class WordValue:
    """A value of `words` words of 8 bytes. Seed and position determine each word."""

    words: int
    seed: int

    def __str__(self) -> str:
        return f"{self.words}:{self.seed}"

    def to_bytes(self) -> bytes:
        """The value's row in the JVM's bytes."""
        words = [(self.seed + place * STEP) % (1 << 64) for place in range(self.words)]
        return struct.pack(f"<{self.words}Q", *words)


def key_bytes(number: int) -> bytes:
    """The row of the key with this number, in the JVM's bytes."""
    more = number % 3
    words = [0, prefix_of(number), number, (32 << 32) | more * WORD_BYTES, *[number] * more]
    return struct.pack(f"<{len(words)}Q", *words)


def prefix_of(number: int) -> int:
    """The prefix of a key. Odd keys share 13 prefixes with many keys each; an even key shares its
    prefix with at most three other even keys."""
    return number % 13 if number % 2 else 100 + number // 8


def crc32c(data: bytes) -> int:
    """Compute the checksum bit by bit, as a signed number."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    (signed,) = struct.unpack("<i", struct.pack("<I", crc ^ 0xFFFFFFFF))
    return int(signed)


def old_entries(entries: Mapping[int, WordValue], part: str, up_to: int) -> dict[int, WordValue]:
    """The entries with a time of at most `up_to`. `part`: "key" or "value", the source of the
    time."""

    def time_of(number: int, value: WordValue) -> int | None:
        if part == "key":
            return number
        return None if value.seed % 4 == 3 else value.seed

    times = {number: time_of(number, value) for number, value in entries.items()}
    return {n: entries[n] for n, time in times.items() if time is not None and time <= up_to}


def shown(entries: Mapping[int, WordValue]) -> str:
    """Entries in the JVM's text form."""
    return " ".join(sorted(f"{number}={value}" for number, value in entries.items()))


def shown_prefix(entries: Mapping[int, WordValue], prefix: int) -> str:
    """The entries with this key prefix, in the JVM's text form."""
    return shown({n: value for n, value in entries.items() if prefix_of(n) == prefix})


@dataclass
class Script:
    """Lines, each with its expected result. Results with expectation None are not checked."""

    lines: list[str] = field(default_factory=list)
    expected: list[str | None] = field(default_factory=list)

    def add(self, line: str, expected: str | None) -> None:
        self.lines.append(line)
        self.expected.append(expected)

    def then(self, *lines: str) -> Self:
        """Add lines: "line -> result", "line -> ?" for any result, or a line without output."""
        for line in lines:
            line, _, expected = line.partition(" -> ")
            self.add(line, None if expected == "?" else expected)
        return self

    def run_on(self, target: Any) -> list[str]:
        """Run the lines, compare the results with the expected results, and return the results."""
        results: list[str] = target.run("\n".join(self.lines)).split("\n") if self.lines else []
        assert len(results) == len(self.lines)
        for step, result in enumerate(results):
            if self.expected[step] is not None:
                context = f"line {step}: {self.lines[step]}"
                assert (context, result) == (context, self.expected[step])
        return results


def results_on(target: Any, *lines: str) -> list[str]:
    """The results of lines without expected results."""
    return Script([*lines], [None] * len(lines)).run_on(target)


class ProviderJvm:
    """The compiled drivers of scripts, in a class loader of their own."""

    def __init__(self, spark: SparkSession, jar: Path) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._gateway = gateway
        java = gateway.jvm.java
        urls = self._array(java.net.URL, [java.io.File(str(jar)).toURI().toURL()])
        parent = java.lang.Thread.currentThread().getContextClassLoader()
        self._loader = java.net.URLClassLoader(urls, parent)

    def new(self, name: str, *arguments: bool | int | str) -> Any:
        """A new object of a driver class."""
        constructor = self._loader.loadClass(f"{SCRIPTS}.{name}").getConstructors()[0]
        values = self._array(self._gateway.jvm.java.lang.Object, arguments)
        return constructor.newInstance(values)

    def results(self, script: str, root: Path, *lines: str) -> list[str]:
        """The results of lines in a new script whose files are below `root`."""
        results: str = self.new(script, str(root)).run("\n".join(lines))
        return results.split("\n")

    def _array(self, of_class: Any, items: Iterable[object]) -> Any:
        listed = list(items)
        array = self._gateway.new_array(of_class, len(listed))
        for place, item in enumerate(listed):
            array[place] = item
        return array


def scripts_jar() -> Path:
    """The drivers of scripts, compiled for the installed Spark and the current provider."""
    sources = sorted(SOURCES.rglob("*.scala"))
    provider = Path(spark_state.jar_path())
    compiled_from = hashlib.sha256(pyspark.__version__.encode())
    for file in (provider, *sources):
        compiled_from.update(file.read_bytes())
    jar = BUILD / f"provider-scripts-{compiled_from.hexdigest()[:16]}.jar"
    if not jar.exists():
        compile_jar(sources, jar, classpath=[provider])
    return jar


@cache
def _loaded(spark: SparkSession) -> ProviderJvm:
    return ProviderJvm(spark, scripts_jar())


@pytest.fixture(scope="module")
def provider_jvm(spark: SparkSession) -> ProviderJvm:
    """The drivers of scripts, for modules that import this fixture."""
    return _loaded(spark)


@pytest.fixture
def tasks(provider_jvm: ProviderJvm, tmp_path: Path) -> Tasks:
    """Run lines of `ProviderScript` with files in the test's folder, and return the results."""
    return partial(provider_jvm.results, "ProviderScript", tmp_path)


@pytest.fixture(params=["heap", "disk"])
def local_directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The directory of the files of a map or a state; empty for one on the heap."""
    return "" if request.param == "heap" else str(tmp_path)
