"""Compiles Scala with the compiler that PySpark ships. Needs only a Java runtime.

`setup.py` runs this file by path, before the package is installed. So the imports are from the
standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_JAVA = "17"


class ScalaCompilerError(Exception):
    """The sources do not compile, or a tool for compiling is missing."""


def spark_jars() -> Path:
    """The directory of PySpark's jars. Raises ScalaCompilerError when PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ScalaCompilerError("pyspark is not installed: pip install 'pyspark>=4.3,<4.4'")
    return Path(spec.origin).parent / "jars"


def compile_jar(
    sources: Iterable[Path],
    jar: Path,
    classpath: Sequence[Path] = (),
    services: Mapping[str, str] | None = None,
    *,
    jars: Path | None = None,
) -> None:
    """Compile `sources` against PySpark's jars and `classpath` into `jar`.

    `services`: name of an interface -> name of the class that implements the interface, for Java's
    ServiceLoader. `jars`: directory with the jars of another Spark version, to compile with these
    jars and their compiler.

    Raises ScalaCompilerError with the compiler's messages; an existing `jar` is then unchanged.
    """
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_name(f".{os.getpid()}-{jar.name}")
    spark = jars or spark_jars()
    entries = [str(spark / "*"), *map(str, classpath)]
    command = [
        *(java_program(), "-cp", os.pathsep.join(entries), "scala.tools.nsc.Main", "-usejavacp"),
        *("-target", _JAVA, "-opt:local", "-deprecation", "-Xlint", "-Werror"),
        *("-d", str(unfinished), *sorted(map(str, sources))),
    ]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            required = "" if jars else ", which must be Spark 4.3's"
            raise ScalaCompilerError(
                f"the Scala sources do not compile against {spark}{required}:\n"
                f"{run.stdout}{run.stderr}"
            )
        with zipfile.ZipFile(unfinished, "a") as archive:
            for interface, implementation in (services or {}).items():
                archive.writestr(f"META-INF/services/{interface}", f"{implementation}\n")
        unfinished.replace(jar)
    finally:
        unfinished.unlink(missing_ok=True)


def java_program() -> str:
    """The Java program of JAVA_HOME, or of the PATH if JAVA_HOME is not set. Raises
    ScalaCompilerError if the program does not exist."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ScalaCompilerError(
            f"Java {_JAVA} or newer is needed, and {java or 'no java on the PATH'} was found: "
            "install openjdk-17-jre-headless or set JAVA_HOME"
        )
    return java
