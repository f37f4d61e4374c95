"""Sessions that lack what tables need: the jar, or cowstate in the Python that Spark runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import spark_state

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[2] / "docs"
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
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs statements in a session of its own; what it prints."""

    def start(statements: str, jar: str = "", python: str = sys.executable) -> str:
        program = textwrap.dedent(SESSION) + textwrap.dedent(statements) + "\nspark.stop()\n"
        command = [sys.executable, "-c", program, str(tmp_path), jar]
        interpreters = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        env = {**os.environ, **interpreters}
        # Elsewhere, because Python finds modules in the directory in which it runs.
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=env, cwd=tmp_path
        ).stdout

    return start


def test_without_the_jar_spark_refuses_output_mode_update_in_words_that_the_docs_have(
    run: Run,
) -> None:
    said = run(
        """
        counts = spark.readStream.format("rate").load().groupBy("value").count()
        writer = counts.writeStream.format("cowstate").outputMode("update").option("keys", "value")
        writer = writer.option("checkpointLocation", folder + "/checkpoint")
        tell(lambda: writer.start(folder + "/table").processAllAvailable())
        """
    )
    words = "cowstate does not support Update mode"
    assert words in said
    for page in ("how-to/state-as-a-table.md", "how-to/troubleshoot.md"):
        assert words in (DOCS / page).read_text()


@pytest.mark.parametrize("columns", ["", "(id BIGINT, v STRING)"])
def test_without_the_jar_tables_of_the_catalog_are_refused_with_the_way_out(
    run: Run, columns: str
) -> None:
    said = run(
        f"""
        rows = spark.createDataFrame([(1, "a")], "id long, v string")
        rows.write.format("cowstate").mode("append").option("keys", "id").save(folder + "/table")
        create = "CREATE TABLE known {columns} USING cowstate LOCATION '" + folder + "/table'"
        tell(lambda: spark.sql(create))
        tell(lambda: spark.sql("INSERT INTO known VALUES (2, 'b')"))
        tell(lambda: spark.table("known").collect())
        """
    )
    refusals = 1 if not columns else 2
    assert said.count("They are known in a session that spark_state.configure built") == refusals
    assert "name the table by its path" in said


def test_a_python_without_cowstate_is_named(run: Run, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    said = run(
        'tell(lambda: spark.read.format("cowstate").load(folder))',
        jar=spark_state.jar_path(),
        python=str(bare),
    )
    assert f"the Python that Spark runs, {bare}, has not cowstate's data source" in said
    assert "set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON" in said
