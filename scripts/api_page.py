"""Writes docs/reference/api.md from the docstrings of all exported names.

python -m scripts.api_page
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.md"
MODULES = (
    "spark_state",
    "spark_state.barriers",
    "spark_state.barriers.input_gate",
    "spark_state.testing",
    "checkpoint_store",
    "checkpoint_store.objects.object_store",
    "checkpoint_store.objects.object_info",
    "checkpoint_store.provider.provider_checkpoint",
    "datasources",
)
_QUOTED_TYPE = re.compile(r"(: |-> )'([^']*)'")
_LITERALS = (str, int, float, type(None), tuple)
_TITLE = """# Python API

All exported names of the packages, with signatures and docstrings. `python -m scripts.api_page`
writes this page. [Errors](errors.md) says what to do about each error.
"""


def api_page() -> str:
    """The text of the page for the present docstrings."""
    return "\n".join([_TITLE, *(_section(importlib.import_module(name)) for name in MODULES)])


def _section(module: Any) -> str:
    exported = {name: getattr(module, name) for name in sorted(_public_names(module))}
    errors = {name: value for name, value in exported.items() if _is_error(value)}
    parts = [f"## {module.__name__}\n\n{inspect.getdoc(module)}\n"]
    for name, value in exported.items():
        if name not in errors and (inspect.isclass(value) or inspect.isfunction(value)):
            parts.append(_entry(name, value))
    if errors:
        rows = (f"| `{name}` | {_first_paragraph(value)} |" for name, value in errors.items())
        parts.append("\n".join(["| error | meaning |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


def _public_names(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = (name for name in vars(module) if not name.startswith("_"))
    return [name for name in own if _is_defined_in(getattr(module, name), module)]


def _is_defined_in(value: Any, module: Any) -> bool:
    return bool(getattr(value, "__module__", None) == module.__name__)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: Any) -> str:
    kind = "class " if inspect.isclass(value) else ""
    heading = f"### {name}\n\n```python\n{kind}{name}{_signature(value)}\n```\n"
    parts = [heading, f"{inspect.getdoc(value)}\n"]
    if methods := _methods(value) if kind else {}:
        parts.append("\n".join(map(_method_line, methods, methods.values())) + "\n")
    return "\n".join(parts)


def _method_line(name: str, method: Any) -> str:
    return f"- `{name}{_signature(method)}`: {_first_paragraph(method)}"


def _methods(value: type) -> dict[str, Any]:
    """The public methods and properties with a docstring, by name."""
    members = (
        (name, getattr(member, "fget", None) or getattr(member, "__func__", member))
        for name, member in sorted(vars(value).items())
        if not name.startswith("_")
    )
    return {name: each for name, each in members if inspect.isfunction(each) and each.__doc__}


def _signature(value: Any) -> str:
    """The parameters without `self`. A default that is no literal is shown as `...`."""
    signature = inspect.signature(value)
    shown = [
        each.replace(default=each.default if isinstance(each.default, _LITERALS) else ...)
        if each.default is not each.empty
        else each
        for name, each in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=shown)).replace("Ellipsis", "...")
    return _QUOTED_TYPE.sub(r"\1\2", text)


def _first_paragraph(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(api_page(), encoding="utf-8")
