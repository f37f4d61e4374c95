"""The published archives work in environments where nothing else is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.cowstate.test_readme import readme_program
from tests.support.applications import whole_applications
from tests.support.sessions.java_options import DRIVER_OPTIONS, MORE_CLASSES
from tests.support.stores.cloud_servers import free_port

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(2400)]


@dataclass(frozen=True)
class Installed:
    """An environment with cowstate. `folder`: an empty folder, far from the source tree."""

    bin: Path
    folder: Path

    def run(self, command: str, *arguments: str | Path) -> str:
        """Run a program of the environment, and return its output."""
        return run(self.bin / command, *arguments, folder=self.folder)


@dataclass(frozen=True)
class Archives:
    """The source archive, and the wheel that pip makes from the source archive alone."""

    source: Path
    wheel: Path


def run(*command: str | Path, folder: Path) -> str:
    """Run a command that sees neither this environment nor the source tree, and return its
    output."""
    environment = clean_environment()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The environment variables, without the variables that name this environment and the source
    tree."""
    hidden = (
        *("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"),
        DRIVER_OPTIONS,
        MORE_CLASSES,
    )
    return {key: value for key, value in os.environ.items() if key not in hidden}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    folder = tmp_path_factory.mktemp("archives")
    build = (sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder)
    run(*build, ROOT, folder=folder)
    (source,) = folder.glob("*.tar.gz")
    # An environment with only the build requirements of pyproject.toml.
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", source, folder=folder)
    (wheel,) = folder.glob("*.whl")
    return Archives(source, wheel)


def installed(folder: Path, *requirements: str) -> Installed:
    """A fresh environment with these requirements."""
    run(sys.executable, "-m", "venv", "environment", folder=folder)
    programs = folder / "environment" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", *requirements, folder=folder)
    (folder / "empty").mkdir()
    return Installed(programs, folder / "empty")


@pytest.fixture(scope="module")
def newest(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel on the newest Spark."""
    wheel = f"cowstate[demo] @ {archives.wheel.as_uri()}"
    return installed(tmp_path_factory.mktemp("newest"), wheel)


def test_the_archives_hold_what_they_should(archives: Archives) -> None:
    with tarfile.open(archives.source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "setup.cfg", "pyproject.toml", "pyspark_cowstate.py"} <= packed
    with zipfile.ZipFile(archives.wheel) as archive:
        names = set(archive.namelist())
    examples = {
        f"cowstate/{path.relative_to(ROOT)}"
        for path in (ROOT / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "cowstate/command_log4j2.properties",
        "pyspark_cowstate.py",
        "spark_state/jars/cowstate-provider.jar",
        *examples,
        *(
            f"{package}/py.typed"
            for package in ("checkpoint_store", "cowstate", "datasources", "spark_state")
        ),
    } <= names
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_the_wheel_runs_the_demo_and_the_commands(newest: Installed) -> None:
    report = json.loads(newest.run("cowstate", "demo", "--flights", "3000", "--json"))
    assert report["agrees_with_batch"] is True
    query = newest.folder / "cowstate-demo" / "store" / report["stream"]["query_id"]
    shown = json.loads(newest.run("cowstate", "progress", query, "--json"))
    assert shown[0]["rows_total"] > 0
    newest.run("cowstate", "savepoint", query, newest.folder / "savepoint")
    jar = newest.run("cowstate", "jar").strip()
    assert Path(jar).is_relative_to(newest.bin.parent)
    newest.run("cowstate", "example", "kafka")
    assert (newest.folder / "kafka-example" / "run.py").is_file()
    newest.run("cowstate", "example", "monitoring")
    assert (newest.folder / "monitoring-example" / "alerts.yml").is_file()


def test_the_wheel_runs_the_code_of_a_notebook(newest: Installed) -> None:
    notebook = json.loads((ROOT / "notebooks" / "01_python_state.ipynb").read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = newest.folder / "notebook.py"
    program.write_text("import matplotlib\nmatplotlib.use('Agg')\n" + "\n".join(code))
    newest.run("python", program)


@pytest.mark.parametrize("spark", ["4.2", "4.3"])
def test_the_programs_of_the_readme_run(
    archives: Archives, newest: Installed, tmp_path: Path, spark: str
) -> None:
    """Operator, provider and table: from the wheel on the newest Spark, from the source archive on
    the oldest."""
    environment = newest
    if spark != "4.3":
        source = f"cowstate @ {archives.source.as_uri()}"
        environment = installed(tmp_path, source, f"pyspark[sql]=={spark}.*")
    assert environment.run("python", "-c", "import pyspark; print(pyspark.__version__)").startswith(
        spark
    )
    program = environment.folder / "readme.py"
    program.write_text(readme_program(environment.folder / "written"))
    assert environment.run("python", program).count("Batch: 0") == 2


class Cluster:
    """A standalone master with two workers of a core each, whose `python3` has no packages."""

    def __init__(self, environment: Installed, folder: Path) -> None:
        (self._spark,) = environment.bin.parent.glob("lib/python*/site-packages/pyspark")
        self._driver = environment.bin / "python"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", "bare", folder=folder)
        self.master = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> Cluster:
        host, port = self.master.removeprefix("spark://").split(":")
        self._start("master.Master", "--host", host, "--port", port, "--webui-port", "0")
        for number in range(2):
            options = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0")
            work = ("--work-dir", str(self.folder / f"worker-{number}"))
            self._start("worker.Worker", *options, *work, self.master)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            whole_applications.kill(process)

    def _start(self, name: str, *arguments: str) -> None:
        path = f"{self.folder / 'bare' / 'bin'}:{os.environ['PATH']}"
        program = self._spark / "bin" / "spark-class"
        with (self.folder / "cluster.log").open("ab") as log:
            process = subprocess.Popen(
                (program, f"org.apache.spark.deploy.{name}", *arguments),
                env={**clean_environment(), "SPARK_HOME": str(self._spark), "PATH": path},
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)

    def submit(self, folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the job with spark-submit, in an empty folder."""
        folder.mkdir()
        job = folder / "job.py"
        job.write_text(JOB)
        program = self._spark / "bin" / "spark-submit"
        return subprocess.run(
            (
                *(program, "--master", self.master),
                *("--conf", f"spark.pyspark.driver.python={self._driver}"),
                *options,
                job,
            ),
            cwd=folder,
            env={**clean_environment(), "SPARK_HOME": str(self._spark)},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


JOB = """
from pathlib import Path

import spark_state
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor


class Count(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.seen.get()[0] if self.seen.exists() else 0) + sum(1 for _ in rows)
        self.seen.update((n,))
        yield Row(key=key[0], n=n)

    def close(self):
        pass


def show(batch, epoch):
    print("batch", epoch, sorted(map(tuple, batch.collect())), flush=True)


folder = Path.cwd()
spark = spark_state.configure(SparkSession.builder).getOrCreate()
spark.conf.set("spark.cowstate.store", (folder / "store").as_uri())
spark_state.enable(spark)
for part in range(2):
    spark.range(14 * part, 14 * part + 14).coalesce(1).write.mode("append").parquet("rows")
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet("rows")
counts = rows.selectExpr("string(id % 3) AS key").groupBy("key").transformWithState(
    Count(), "key string, n long", outputMode="update", timeMode="None"
)
query = (
    counts.writeStream.outputMode("update")
    .foreachBatch(show)
    .option("checkpointLocation", "checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
"""
COUNTED = [
    "batch 0 [('0', 5), ('1', 5), ('2', 4)]",
    "batch 1 [('0', 10), ('1', 9), ('2', 9)]",
]


@pytest.fixture(scope="module")
def cluster(newest: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(newest, tmp_path_factory.mktemp("cluster")) as running:
        yield running


def assert_counted(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout.splitlines() == COUNTED, done.stderr[-5000:]


class TestExecutors:
    """The ways of docs/how-to/run-on-a-cluster.md to bring cowstate to executors."""

    def test_an_executor_without_packages_is_told_the_command(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        done = cluster.submit(tmp_path / "job")
        assert done.returncode == 1
        (line,) = [line for line in done.stdout.splitlines() if "pip install" in line]
        assert line.partition(": ")[2].startswith(
            "No module named 'pyarrow': the Python of an exec"
        )

    def test_a_shared_path(self, newest: Installed, cluster: Cluster, tmp_path: Path) -> None:
        python = newest.bin / "python"
        assert_counted(cluster.submit(tmp_path / "job", "--conf", f"spark.pyspark.python={python}"))

    def test_a_packed_environment(
        self, newest: Installed, cluster: Cluster, tmp_path: Path
    ) -> None:
        newest.run("python", "-m", "pip", "install", "--quiet", "venv-pack")
        packed = tmp_path / "environment.tar.gz"
        newest.run(
            *("venv-pack", "--prefix", newest.bin.parent, "--output", packed),
            *("--exclude", "lib/python*/site-packages/pyspark/*", "--compress-level", "1"),
        )
        python = "./environment/bin/python"
        options = (
            "--archives",
            f"{packed}#environment",
            "--conf",
            f"spark.pyspark.python={python}",
        )
        assert_counted(cluster.submit(tmp_path / "job", *options))

    def test_the_wheel_alone(
        self, archives: Archives, newest: Installed, cluster: Cluster, tmp_path: Path
    ) -> None:
        """The interpreter of the executors has the packages that cowstate needs, without
        cowstate."""
        run(sys.executable, "-m", "venv", "--without-pip", "others", folder=tmp_path)
        (packages,) = newest.bin.parent.glob("lib/python*/site-packages")
        (others,) = (tmp_path / "others").glob("lib/python*/site-packages")
        ours = ("checkpoint_store", "cowstate", "datasources", "spark_state", "pyspark_cowstate")
        for entry in packages.iterdir():
            if not entry.name.startswith(ours):
                (others / entry.name).symlink_to(entry)
        zipped = shutil.copy(archives.wheel, tmp_path / "cowstate.zip")
        python = f"spark.pyspark.python={tmp_path / 'others' / 'bin' / 'python'}"
        lacking = cluster.submit(tmp_path / "lacking", "--conf", python)
        assert "No module named 'spark_state': this Python worker runs" in lacking.stdout
        path = "spark.executorEnv.PYTHONPATH=./cowstate-packages"
        archive = f"{zipped}#cowstate-packages"
        options = ("--archives", archive, "--conf", path, "--conf", python)
        assert_counted(cluster.submit(tmp_path / "job", *options))
        refused = cluster.submit(tmp_path / "refused", "--py-files", zipped, "--conf", python)
        assert "Spark can use no jar in an archive: install cowstate" in refused.stdout
