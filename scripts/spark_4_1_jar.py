"""Compiles the provider's jar for Spark 4.1: python -m scripts.spark_4_1_jar

The sources of `scripts/spark_4_1` replace the provider's sources of `spark_state/jvm/spark`; all
other sources are the provider's. PySpark 4.1 comes from PyPI.
"""

from __future__ import annotations

from pathlib import Path

from scripts.spark_of_pypi import spark_of_pypi
from spark_state.jvm.scala_compiler import compile_jar

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "spark_state" / "jvm"
JAR = ROOT / "build" / "cowstate-provider-spark-4.1.jar"


def sources() -> list[Path]:
    """The Scala sources of the jar."""
    common = [path for path in SOURCES.rglob("*.scala") if path.parent.name != "spark"]
    return [*common, *(ROOT / "scripts" / "spark_4_1").glob("*.scala")]


def main() -> None:
    jars = spark_of_pypi("4.1.*", ROOT / "build" / "spark-4.1")
    compile_jar(sources(), JAR, jars=jars)
    print(JAR)


if __name__ == "__main__":
    main()
