"""The few limits on size and naming that the project keeps, checked over every Python file.

Files in Scala keep the one on the lines of a file.
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
# They take what Spark's methods take, and a name.
FORMS_OF_SPARK = {
    "transform_with_state",
    "transform_with_state_in_arrow",
    "transform_with_state_in_pandas",
}
VAGUE_NAMES = {
    *("util", "utils", "helper", "helpers", "common", "base", "misc"),
    *("manager", "impl", "abstract", "factory"),
}
EMPTY_NAMES = {"found", "known", "of", "one"}
# The field that has the name, by what gives it.
NAME_FIELDS = {ast.Name: "id", ast.arg: "arg", ast.alias: "asname"} | dict.fromkeys(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar), "name"
)
# At the beginning of a text, a paragraph or an item of a list, or after the end of a sentence.
OF_IN_FRONT = re.compile(r"(?:\A|[.!?]\s+|\n\s*\n)(?:\s|[-*|])*(Of\s\S+)")
SCALA_COMMENT = re.compile(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+|//[^\n]*", re.DOTALL | re.MULTILINE)
SCALA_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_NAME = f"({'|'.join(sorted(EMPTY_NAMES))})"
SCALA_NAME = re.compile(rf"\bva[lr] {_NAME}\b|(?<![.\w]){_NAME}(?:: |\)? =>| <-)")
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


def comments(source: str) -> list[str]:
    """Comments without their signs; lines that follow each other are one comment."""
    blocks: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text, line = token.string.lstrip("# "), token.start[0]
            if blocks and blocks[-1][0] == line - 1 and not text.startswith("type:"):
                text = f"{blocks.pop()[1]}\n{text}"
            blocks.append((line, text))
    return [text for _, text in blocks]


def texts(source: str) -> list[str]:
    """Comments, docstrings and messages."""
    constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return comments(source) + [node.value for node in constants if isinstance(node.value, str)]


def scala_comments(source: str) -> list[str]:
    """Comments without their signs."""
    return [
        re.sub(r"^[ \t]*(?:/\*\*?|\*/|\*|//)", "", match[0], flags=re.MULTILINE)
        for match in SCALA_COMMENT.finditer(source)
    ]


def sentences_that_begin_with_of(texts: Iterable[str]) -> list[str]:
    return [" ".join(match[1].split()) for text in texts for match in OF_IN_FRONT.finditer(text)]


def names_that_say_nothing(tree: ast.Module) -> list[str]:
    """Locals, parameters and functions; a member of a class is said with its object."""
    members = {
        id(getattr(statement, "target", statement))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
    }
    return [
        f"line {node.lineno}: {name}"
        for node in ast.walk(tree)
        if (name := getattr(node, NAME_FIELDS.get(type(node), ""), None)) in EMPTY_NAMES
        and isinstance(getattr(node, "ctx", ast.Store()), ast.Store)
        and id(node) not in members
    ]


def scala_names_that_say_nothing(source: str) -> list[str]:
    lines = SCALA_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), source).split("\n")
    return [
        f"line {number}: {match[1] or match[2]}"
        for number, line in enumerate(lines, 1)
        for match in SCALA_NAME.finditer(SCALA_TEXT.sub('""', line))
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
    """What a check finds, by file; nothing of a file in which it finds nothing."""
    checked = {str(path.relative_to(root)): sorted(places(path)) for path in files}
    return {name: untidy for name, untidy in checked.items() if untidy}


def empty_names(root: Path) -> dict[str, list[str]]:
    def in_python(path: Path) -> list[str]:
        return names_that_say_nothing(ast.parse(path.read_text(encoding="utf-8")))

    def in_scala(path: Path) -> list[str]:
        return scala_names_that_say_nothing(path.read_text(encoding="utf-8"))

    in_scala_files = by_file(in_scala, _files_in(root, "scala"), root)
    return by_file(in_python, _files_in(root, "py"), root) | in_scala_files


def test_modules_keep_the_limits() -> None:
    assert by_file(lambda path: untidy_places(path.read_text(encoding="utf-8")), FILES) == {}


def test_files_in_scala_keep_the_limit_on_lines() -> None:
    assert by_file(lambda path: long_modules(path.read_text(encoding="utf-8")), SCALA_FILES) == {}


def test_no_sentence_begins_with_of() -> None:
    def in_python(path: Path) -> list[str]:
        return sentences_that_begin_with_of(texts(path.read_text(encoding="utf-8")))

    def in_scala(path: Path) -> list[str]:
        return sentences_that_begin_with_of(scala_comments(path.read_text(encoding="utf-8")))

    assert by_file(in_python, FILES) == {}
    assert by_file(in_scala, SCALA_FILES) == {}


def test_locals_and_parameters_say_what_they_hold() -> None:
    assert empty_names(ROOT) == {}


def test_the_rule_on_names_covers_packages_and_tests(tmp_path: Path) -> None:
    sources = {
        "cowstate/rows.py": "known = {}\n",
        "tests/unit/test_rows.py": "for one in rows:\n    assert one\n",
        "tests/support/Rows.scala": "val found = rows\n",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(source)
    assert empty_names(tmp_path) == {
        "cowstate/rows.py": ["line 1: known"],
        "tests/unit/test_rows.py": ["line 1: one"],
        "tests/support/Rows.scala": ["line 1: found"],
    }


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


def test_names_that_say_nothing_are_seen_wherever_they_are_given() -> None:
    source = (
        "import rows as known\n"
        "found, (one, *of) = known.of\n"
        "with one as known, (found := of): ...\n"
        "for known.of, one in rows(of=[of for found in one]): ...\n"
        "try: ...\n"
        "except Error as found: del found\n"
        "match one:\n"
        "    case [1, *found] | Row(found=known): ...\n"
        "async def of(*one, **known): return lambda found: found\n"
        "class Rows:\n"
        "    found: int\n"
        "    def of(self, known=one): ...\n"
    )
    assert sorted(names_that_say_nothing(ast.parse(source))) == [
        *("line 12: known", "line 1: known", "line 2: found", "line 2: of", "line 2: one"),
        *("line 3: found", "line 3: known", "line 4: found", "line 4: one"),
        *("line 6: found", "line 8: found", "line 8: known"),
        *("line 9: found", "line 9: known", "line 9: of", "line 9: one"),
    ]


def test_the_checks_of_words_find_what_they_look_for() -> None:
    source = (
        '"""Rows. OF two\n the later wins; of three, too.\n\n    OF these one."""\n'
        "# OF a comment, and\n"
        "# no more. OF\n"
        "# its second line.\n"
        "class Row:\n"
        "    found: int\n"
        "def f(of, *, rows):\n"
        '    return [f"{one}. OF which" for one in rows]\n'
    ).replace("OF", "Of")
    assert [text.lower() for text in sentences_that_begin_with_of(texts(source))] == [
        "of a",
        "of its",
        "of two",
        "of these",
        "of which",
    ]
    assert names_that_say_nothing(ast.parse(source)) == ["line 10: of", "line 11: one"]
    scala = (
        "/** Rows. OF two the later wins. */\n"
        "def f(of: Int, rows: Seq[Int]) = { // OF a comment\n"
        "  val found = rows.map(one => one + of)\n"
        "  for (known <- found if found == rows.found) yield known\n"
    ).replace("OF", "Of")
    assert [text.lower() for text in sentences_that_begin_with_of(scala_comments(scala))] == [
        "of two",
        "of a",
    ]
    assert scala_names_that_say_nothing(scala) == [
        "line 2: of",
        "line 3: found",
        "line 3: one",
        "line 4: known",
    ]
