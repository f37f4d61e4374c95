"""The project's few limits on size and naming, checked over every Python file.

Scala files keep only the limit on the lines of a file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 500
MAX_PARAMETERS = 6
# These functions take the parameters of Spark's methods, and a name.
FORMS_OF_SPARK = {
    "transform_with_state",
    "transform_with_state_in_arrow",
    "transform_with_state_in_pandas",
}
VAGUE_NAMES = {
    *("util", "utils", "helper", "helpers", "common", "base", "misc"),
    *("manager", "impl", "abstract", "factory"),
}
BANNER = re.compile(r"^#\s*[-=#*~_+─═]{3,}")


def _files_in(root: Path, language: str) -> list[Path]:
    folders = ("checkpoint_store", "spark_state", "datasources", "cowstate", "scripts", "tests")
    return sorted(path for folder in folders for path in (root / folder).rglob(f"*.{language}"))


FILES = _files_in(ROOT, "py")
SCALA_FILES = _files_in(ROOT, "scala")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name} (line {node.lineno}) has {length} lines"
        for node in ast.walk(tree)
        if isinstance(node, Function)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def crowded_signatures(tree: ast.Module) -> list[str]:
    crowded = []
    for node in ast.walk(tree):
        if isinstance(node, Function):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = [argument.arg for argument in arguments]
            if names[:1] in (["self"], ["cls"]):
                names = names[1:]
            if len(names) > MAX_PARAMETERS and node.name not in FORMS_OF_SPARK:
                crowded.append(f"{node.name} (line {node.lineno}) takes {len(names)} parameters")
    return crowded


def star_imports(tree: ast.Module) -> list[str]:
    return [
        f"line {node.lineno} imports * from {node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names)
    ]


def words_of(name: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def vague_class_names(tree: ast.Module) -> list[str]:
    return [
        f"class {node.name} (line {node.lineno})"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and words_of(node.name) & VAGUE_NAMES
    ]


def section_banners(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokens
        if token.type == tokenize.COMMENT and BANNER.match(token.string)
    ]


def long_modules(source: str) -> list[str]:
    lines = source.count("\n") + 1
    return [f"the module has {lines} lines"] if lines > MAX_MODULE_LINES else []


def untidy_places(source: str) -> list[str]:
    tree = ast.parse(source)
    places = long_modules(source)
    if not (ast.get_docstring(tree) or not source.strip()):
        places.append("the module has no docstring")
    for check in (long_functions, crowded_signatures, star_imports, vague_class_names):
        places += check(tree)
    return places + section_banners(source)


def by_file(
    places: Callable[[Path], Iterable[str]], files: Iterable[Path], root: Path = ROOT
) -> dict[str, list[str]]:
    """The findings of a check, by file. Files without findings are left out."""
    checked = {str(path.relative_to(root)): sorted(places(path)) for path in files}
    return {name: untidy for name, untidy in checked.items() if untidy}


def test_modules_keep_the_limits() -> None:
    assert by_file(lambda path: untidy_places(path.read_text(encoding="utf-8")), FILES) == {}


def test_files_in_scala_keep_the_limit_on_lines() -> None:
    assert by_file(lambda path: long_modules(path.read_text(encoding="utf-8")), SCALA_FILES) == {}


def test_no_file_or_folder_has_a_vague_name() -> None:
    def vague(path: Path) -> set[str]:
        parts = path.relative_to(ROOT).parts
        return VAGUE_NAMES & {word for part in parts for word in words_of(Path(part).stem)}

    assert FILES
    assert by_file(vague, FILES) == {}


def test_the_checks_find_what_they_look_for() -> None:
    too_long = "x = 1\n" * MAX_MODULE_LINES
    assert long_modules(too_long) == [f"the module has {MAX_MODULE_LINES + 1} lines"]
    long_body = "    x = 1\n" * MAX_FUNCTION_LINES
    source = (
        "from os import *\n"
        "# ---- section ----\n"
        "class StoreManager: ...\n"
        "def wide(self, a, b, c, d, e, f, *, g): ...\n"
        f"def tall():\n{long_body}"
    )
    assert untidy_places(source) == [
        "the module has no docstring",
        f"tall (line 5) has {MAX_FUNCTION_LINES + 1} lines",
        "wide (line 4) takes 7 parameters",
        "line 1 imports * from os",
        "class StoreManager (line 3)",
        "line 2: # ---- section ----",
    ]
