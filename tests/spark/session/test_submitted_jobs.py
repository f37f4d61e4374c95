"""Jobs work in a JVM that already runs, started by spark-submit or by an earlier session."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pyspark
import pytest

from spark_state import jar_path
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.sessions.java_options import DRIVER_OPTIONS

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
JOB = ROOT / "tests" / "support" / "applications" / "submitted_job.py"
PROGRAMS = Path(pyspark.__file__).parent / "bin"
SUBMIT = (PROGRAMS / "spark-submit", "--master")
COUNTED = ["counted [(0, 10), (1, 10), (2, 10)]", "metrics True", "plan True", "sockets true"]
VERSION_FILE = "spark-version-info.properties"
WITH_JAR = "spark-submit $(cowstate jar --options) JOB.py"


def run(
    command: Sequence[str | Path], folder: Path, *steps: str, options: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the job with a command, in a folder with its input."""
    (folder / "rows").mkdir()
    pyarrow.parquet.write_table(pa.table({"id": range(30)}), folder / "rows" / "ids.parquet")
    return subprocess.run(
        [*command, *steps],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            DRIVER_OPTIONS: f"{os.environ[DRIVER_OPTIONS]} {options}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_a_submitted_job_on_a_cluster_has_provider_table_and_plans(tmp_path: Path) -> None:
    done = run([*SUBMIT, "local-cluster[1,1,1024]", JOB, tmp_path], tmp_path, "count")
    assert done.stdout.splitlines() == COUNTED, done.stderr


def test_a_jvm_that_a_session_without_the_jar_left_gets_it(tmp_path: Path) -> None:
    done = run([*SUBMIT, "local[1]", JOB, tmp_path], tmp_path, "plain", "count", "plain")
    first, *counted, second = done.stdout.splitlines()
    assert counted == COUNTED
    # The JVM has the jar the second time, and the executors of its new application would lack it.
    for refused in (first, second):
        assert refused.startswith("ConfigurationError: a Spark application without cowstate's jar")
        assert "call spark.stop() before configure" in refused
        assert WITH_JAR in refused


def test_a_jvm_whose_class_loader_takes_no_jar_is_refused_with_the_command(tmp_path: Path) -> None:
    program = (PROGRAMS / "spark-class", "org.apache.spark.deploy.PythonRunner", JOB, "", tmp_path)
    done = run(program, tmp_path, "count", options="-Dspark.master=local[1]")
    (refused,) = done.stdout.splitlines()
    assert refused.startswith(
        "count failed: ConfigurationError: the JVM of this driver was started"
    )
    assert WITH_JAR in refused
    assert "AppClassLoader" in refused


def test_a_job_with_the_jar_alone_has_the_state_among_sparks_metrics(tmp_path: Path) -> None:
    sink = "spark.metrics.conf.driver.sink.prometheusServlet"
    settings = {
        PROVIDER_KEY: PROVIDER_CLASS,
        f"{sink}.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        f"{sink}.path": "/metrics/prometheus",
    }
    given = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    options = ("--jars", jar_path(), *given)
    done = run([*SUBMIT, "local[1]", *options, JOB, tmp_path], tmp_path, "metrics")
    shown = {"cowstateMappedBytes": 0, "numRowsTotal": 3, "numRowsUpdated": 3}
    expected = {"cowstate_counts_0_stateStoreSave": shown}
    assert done.stdout.splitlines() == [f"shown {expected}", "shown {}"], done.stderr


def test_a_spark_of_another_version_runs_queries_as_it_planned_them(tmp_path: Path) -> None:
    """Spark reads its version from a file of its class path."""
    (jar,) = (PROGRAMS.parent / "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as classes:
        versions = classes.read(VERSION_FILE).decode()
    path = tmp_path / "path"
    path.mkdir()
    (path / VERSION_FILE).write_text(re.sub(r"(?m)^version=.*", "version=4.9.1", versions))
    done = run([*SUBMIT, "local[1]", "--driver-class-path", path, JOB, tmp_path], tmp_path, "count")
    assert done.stdout.splitlines() == [*COUNTED[:2], "plan False", COUNTED[3]], done.stderr
    (warning,) = re.findall(r"WARN SparkInternals: (.*)", done.stderr)
    assert "made for Spark 4.2 and 4.3, and this is Spark 4.9.1" in warning


def test_a_job_that_asks_for_cowstate_and_gets_other_states_is_told_once(tmp_path: Path) -> None:
    provider = ("--jars", jar_path(), "--conf", f"{PROVIDER_KEY}={PROVIDER_CLASS}")
    enabled = ("--conf", "spark.cowstate.enabled=true", "--conf", "spark.sql.shuffle.partitions=1")
    done = run(
        [*SUBMIT, "local[1]", *provider, *enabled, JOB, tmp_path], tmp_path, "stock", "transform"
    )
    assert done.stdout == "", done.stdout + done.stderr
    adopt, enable = re.findall(r"WARN OperatorsOfSpark: (.*)", done.stderr)
    assert f"{tmp_path}/checkpoint is on HDFSBackedStateStoreProvider" in adopt
    assert re.search(rf"cowstate adopt \S*{tmp_path}/checkpoint --apply$", adopt)
    assert "call spark_state.enable(spark) before transformWithState" in enable
