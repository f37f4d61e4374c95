"""Rules beyond import-linter: the libraries and Spark names that a Python module may use, and the
layers of the Scala packages."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = {"checkpoint_store", "spark_state", "datasources", "cowstate"}
SESSION_MODULES = {
    "pyspark.sql.functions",
    "pyspark.sql.session",
    "pyspark.sql.streaming.listener",
    "pyspark.sql.streaming.query",
}
SESSION_NAMES = {"SparkSession", "SparkContext", "functions"}
JVM = ROOT / "spark_state" / "jvm"
ENGINE = "org.apache.spark.sql.execution.streaming.state.cowstate"
TABLES = "org.apache.spark.sql.execution.datasources.v2.cowstate"
# The Scala packages from the bottom. A package uses packages of lower layers only, so no packages
# form a circle. "" has the classes that users and Python name: the provider and its settings.
LAYERS_OF_SCALA = (
    {"spark"},
    {"base"},
    {"bytes", "memory"},
    {"files", "map"},
    {"checkpoints", "gateway"},
    {"provider"},
    {""},
    {"jobs", "plans"},
    {"tables"},
)


def imported_names(source: str) -> Iterator[str]:
    """Yield every imported dotted name: `from a.b import c` gives a.b.c."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def third_party(source: str) -> set[str]:
    roots = {name.partition(".")[0] for name in imported_names(source)}
    return roots - sys.stdlib_module_names - OURS


def needs_a_session(name: str) -> bool:
    if not name.startswith("pyspark"):
        return False
    return name.rpartition(".")[2] in SESSION_NAMES or any(
        name == module or name.startswith(f"{module}.") for module in SESSION_MODULES
    )


def modules_of(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_checkpoint_store_uses_only_its_libraries() -> None:
    of_arrays = (
        "array_equality",
        "element_fold",
        "key_codes",
        "key_hashes",
        "key_order",
        "known_states",
        "row_fold",
    )
    others = {}
    for path in modules_of("checkpoint_store"):
        allowed = {"pyarrow", "fsspec", "tenacity", "cachetools"}
        if path.stem in (*of_arrays, "table_compaction"):
            allowed.add("numpy")
        others[relative(path)] = third_party(path.read_text(encoding="utf-8")) - allowed
    assert others
    assert {path: libraries for path, libraries in others.items() if libraries} == {}


def test_only_the_spark_package_of_the_engine_uses_a_session() -> None:
    uses = {
        relative(path): {
            name
            for name in imported_names(path.read_text(encoding="utf-8"))
            if needs_a_session(name)
        }
        for path in modules_of("spark_state")
        if path.relative_to(ROOT).parts[1] != "spark"
    }
    assert uses
    assert {path: names for path, names in uses.items() if names} == {}


def test_session_names_are_recognised() -> None:
    source = (
        "from pyspark.sql import Row, SparkSession\n"
        "import pyspark.sql.functions as F\n"
        "from pyspark.sql import functions\n"
        "from pyspark.sql.streaming.stateful_processor import TimerValues\n"
        "from pyspark import TaskContext\n"
    )
    assert sorted(name for name in imported_names(source) if needs_a_session(name)) == [
        "pyspark.sql.SparkSession",
        "pyspark.sql.functions",
        "pyspark.sql.functions",
    ]


def test_every_package_of_ours_is_known_to_the_import_linter() -> None:
    configured = (ROOT / "setup.cfg").read_text(encoding="utf-8").partition("root_packages =")[2]
    present = {folder for folder in OURS if (ROOT / folder / "__init__.py").exists()}
    assert present <= set(configured.partition("include_external")[0].split())


def declared_package(source: str) -> str:
    """The package of a Scala file. Two package clauses would make names visible without import."""
    (package,) = re.findall(r"^package (\S+)$", source, re.MULTILINE)
    return package


def used_packages(source: str) -> set[str]:
    """The packages of ours that a Scala file names: in imports, or before a name in the code."""
    inner = "|".join(sorted(set().union(*LAYERS_OF_SCALA) - {"", "tables"}))
    full = re.findall(rf"\bstate\.cowstate\.(?:({inner})\.|(?=[A-Z{{_]))", source)
    relative_to_ours = re.findall(rf"(?<![\w.])(?:cowstate\.)?({inner})\.[A-Z{{_]\w", source)
    tables = ["tables"] if re.search(r"\bv2\.cowstate\.[A-Z{_]", source) else []
    return {*full, *relative_to_ours, *tables}


def test_the_package_of_a_scala_file_is_its_folder() -> None:
    names = {}
    for path in sorted(JVM.rglob("*.scala")):
        folder = str(path.parent.relative_to(JVM))
        inner = {"tables": TABLES, ".": ENGINE}.get(folder, f"{ENGINE}.{folder}")
        names[relative(path)] = (declared_package(path.read_text(encoding="utf-8")), inner)
    assert {path: pair for path, pair in names.items() if len(set(pair)) > 1} == {}


def test_a_scala_package_uses_packages_of_lower_layers_only() -> None:
    lower: set[str] = set()
    upward = {}
    for layer in LAYERS_OF_SCALA:
        for package in layer:
            sources = sorted((JVM / package).glob("*.scala"))
            assert sources, package
            for path in sources:
                used = used_packages(path.read_text(encoding="utf-8"))
                upward[relative(path)] = used - lower - {package}
        lower |= layer
    assert set(upward) == {relative(path) for path in JVM.rglob("*.scala")}
    assert {path: packages for path, packages in upward.items() if packages} == {}


def test_names_of_scala_packages_are_recognised() -> None:
    source = f"""
    import {ENGINE}.base.StateId
    import {ENGINE}.{{CowStateStoreProvider, SessionSettings}}
    import {TABLES}.CowStateTable
    import org.apache.spark.unsafe.map.BytesToBytesMap
    val url = map.Url
    val index = cowstate.checkpoints.StateFiles
    val key = "stateStore.cowstate.backend"
    """
    assert used_packages(source) == {"base", "", "tables", "map", "checkpoints"}
