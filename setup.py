"""Builds the distribution; setup.cfg describes the project.

The jar of the state store provider is compiled into `spark_state/jars/`, in wheels and in editable
installs, whenever a source is newer than the jar. Wheels have the examples, too, in
`cowstate/examples/`.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "spark_state" / "jvm"
JAR = ROOT / "spark_state" / "jars" / "cowstate-provider.jar"
PACKAGE = "org.apache.spark.sql.execution.datasources.v2.cowstate"
# Services that Spark loads itself: format("cowstate"), and checks of commands on cowstate's tables.
SERVICES = {
    "org.apache.spark.sql.sources.DataSourceRegister": f"{PACKAGE}.CowStateTableProvider",
    "org.apache.spark.sql.SparkSessionExtensionsProvider": f"{PACKAGE}.CowStateExtensions",
}


class BuildWithJar(build_py):
    """Command build_py, with the jar and the examples among the packages' data."""

    def run(self) -> None:
        """Compile if need be, then copy."""
        sources = [*SOURCES.rglob("*.scala"), SOURCES / "scala_compiler.py", Path(__file__)]
        newest = max(source.stat().st_mtime for source in sources)
        if not JAR.exists() or JAR.stat().st_mtime < newest:
            compiler = runpy.run_path(str(SOURCES / "scala_compiler.py"))
            try:
                compiler["compile_jar"](SOURCES.rglob("*.scala"), JAR, services=SERVICES)
            except compiler["ScalaCompilerError"] as error:
                # An editable install goes on after any other exception, without the jar.
                raise SystemExit(f"cowstate cannot be built: {error}") from error
        super().run()
        if not self.editable_mode:
            shutil.copytree(
                ROOT / "examples",
                Path(self.build_lib) / "cowstate" / "examples",
                ignore=shutil.ignore_patterns("__pycache__", "*.whl", "kafka-sessions"),
                dirs_exist_ok=True,
            )


setup(cmdclass={"build_py": BuildWithJar})
