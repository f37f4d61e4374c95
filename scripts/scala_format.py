"""Formats the Scala sources by .scalafmt.conf, or checks that the sources are formatted.

    python scripts/scala_format.py [--check]

scalafmt comes from Maven Central. Its jars are kept in build/scalafmt, and are used only if they
have the checksums of scalafmt.sha256. scalafmt runs on the Scala library that PySpark ships.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / "build" / "scalafmt"
SOURCES = ("spark_state", "tests", "scripts")

sys.path.insert(0, str(ROOT))
from cowstate.pinned_jars import pinned_jars  # noqa: E402
from spark_state.jvm.scala_compiler import compile_jar, spark_jars  # noqa: E402


def unformatted(*, write: bool) -> list[str]:
    """The files that are not formatted. `write`: True to format these files."""
    formatter = ROOT / "scripts" / "ScalaFormat.scala"
    jars = pinned_jars(ROOT / "scripts" / "scalafmt.sha256", JARS)
    # The name has the checksum of the source, so a changed source is compiled anew.
    launcher = JARS / f"launcher-{hashlib.sha256(formatter.read_bytes()).hexdigest()[:12]}.jar"
    if not launcher.exists():
        compile_jar([formatter], launcher, jars)
    scala = spark_jars().glob("scala-*.jar")
    classpath = os.pathsep.join(map(str, [launcher, *jars, *scala]))
    files = sorted(str(path) for folder in SOURCES for path in (ROOT / folder).rglob("*.scala"))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "ScalaFormat"]
    arguments = [str(ROOT / ".scalafmt.conf"), "write" if write else "check", *files]
    run = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return [str(Path(name).relative_to(ROOT)) for name in run.stdout.splitlines()]


def main() -> None:
    is_check = sys.argv[1:] == ["--check"]
    names = unformatted(write=not is_check)
    print(*names, sep="\n", end="\n" if names else "")
    if is_check and names:
        sys.exit("these files are not formatted: run `make scala-format`")


if __name__ == "__main__":
    main()
