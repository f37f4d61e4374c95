"""Sessions without the jar, or without cowstate in Spark's Python, give clear errors for tables."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import spark_state

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[3] / "docs"
SESSION = """
    import sys
    from pyspark.sql import SparkSession

    folder, jar = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", folder + "/warehouse")
    spark = builder.config("spark.jars", jar).getOrCreate()

    def tell(do):
        try:
            do()
        except Exception as error:
            print(str(error).split("JVM stacktrace")[0])

"""
WITHOUT_THE_JAR = """
    rows = spark.createDataFrame([(1, "a")], "id long, v string")
    rows.write.format("cowstate").mode("append").option("keys", "id").save(folder + "/table")
    for name, columns in (("plain", ""), ("typed", "(id BIGINT, v STRING)")):
        create = f"CREATE TABLE {name} {columns} USING cowstate LOCATION '{folder}/table'"
        tell(lambda: spark.sql(create))
        tell(lambda: spark.sql(f"INSERT INTO {name} VALUES (2, 'b')"))
        tell(lambda: spark.table(name).collect())
        print("NEXT")

    counts = spark.readStream.format("rate").load().groupBy("value").count()
    writer = counts.writeStream.format("cowstate").outputMode("update").option("keys", "value")
    writer = writer.option("checkpointLocation", folder + "/checkpoint")
    tell(lambda: writer.start(folder + "/table").processAllAvailable())
"""


def run(folder: Path, statements: str, jar: str = "", python: str = sys.executable) -> str:
    """Run statements in a new session, and return the output."""
    program = textwrap.dedent(SESSION) + textwrap.dedent(statements) + "\nspark.stop()\n"
    command = [sys.executable, "-c", program, str(folder), jar]
    interpreters = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    env = {**os.environ, **interpreters}
    # Python finds modules in its working directory, so the session runs in another directory.
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=env, cwd=folder
    ).stdout


def test_without_the_jar_what_needs_it_is_refused_with_the_way_out_or_in_words_of_the_docs(
    tmp_path: Path,
) -> None:
    plain, typed, update_mode = run(tmp_path, WITHOUT_THE_JAR).split("NEXT")
    for refused, times in ((plain, 1), (typed, 2)):
        assert refused.count("They are known in a session that spark_state.configure") == times
        assert "name the table by its path" in refused
    words = "cowstate does not support Update mode"
    assert words in update_mode
    for page in ("how-to/state-as-a-table.md", "how-to/troubleshoot.md"):
        assert words in (DOCS / page).read_text()


def test_a_python_without_cowstate_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    said = run(
        tmp_path,
        'tell(lambda: spark.read.format("cowstate").load(folder))',
        jar=spark_state.jar_path(),
        python=str(bare),
    )
    assert f"the Python that Spark runs, {bare}, has not cowstate's data source" in said
    assert "set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON" in said
