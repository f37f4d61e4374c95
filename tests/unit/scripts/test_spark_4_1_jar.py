"""The sources that the jar for Spark 4.1 replaces declare the same names as their replacements."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import spark_4_1_jar

DECLARED = re.compile(r"^private\[cowstate\] (?:trait|object) (\w+)|^  def (\w+)\(", re.MULTILINE)


def declared(path: Path) -> tuple[set[str], set[str]]:
    """Return the traits and objects of a source, and the methods of the object OfSpark."""
    source = path.read_text()
    names = {match[1] for match in DECLARED.finditer(source) if match[1]}
    of_object = source[source.index("object OfSpark") :]
    return names, {match[2] for match in DECLARED.finditer(of_object) if match[2]}


def test_both_declare_the_same() -> None:
    later = declared(spark_4_1_jar.SOURCES / "spark" / "OfSpark.scala")
    assert declared(spark_4_1_jar.ROOT / "scripts" / "spark_4_1" / "OfSpark.scala") == later
    assert later[0] == {"ProviderOfSpark", "ReadStoreOfSpark", "StoreOfSpark", "OfSpark"}
    assert len(later[1]) == 4


def test_the_jar_has_each_class_once() -> None:
    names = [path.name for path in spark_4_1_jar.sources()]
    assert len(names) == len(set(names))
    assert {"OfSpark.scala", "CowStateStoreProvider.scala"} <= set(names)
