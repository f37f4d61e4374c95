"""Modules that a processor's pickle only names, and whether this process has loaded the same ones.

A pickle names classes and functions of modules that can be imported. A state host and a Python
worker live longer than a query: if a module was changed meanwhile, in a notebook or by a
deployment, they would go on with the module that they have imported before. So the driver notes a
digest of the source of each of the user's modules, and who loads the processor compares:

    driver   pickle -> modules that it names, and all that they import -> digests    sources_of
    host     the same digests: loaded as before                                     load_processor
             others: these modules are imported anew, and compared again; if they still differ, the
             process has another version of the file: an error

Modules of the standard library, of installed packages, and those without a source are left out.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import pickle
import pickletools
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from spark_state.errors import ConfigurationError

_NOT_OF_USERS = sys.stdlib_module_names | {
    *("checkpoint_store", "cowstate", "datasources", "pyspark", "spark_state")
}
_PACKAGES = {"site-packages", "dist-packages"}
_loaded: dict[str, str] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A module of the user, and the SHA-256 of its source."""

    name: str
    digest: str


def sources_of(pickled: bytes) -> tuple[ModuleSource, ...]:
    """The user's modules that a pickle needs, each after the modules that it imports."""
    ordered: dict[str, str | None] = {}
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str):
            _add(argument, ordered)
    return tuple(ModuleSource(name, digest) for name, digest in ordered.items() if digest)


def load_processor(pickled: bytes, sources: Sequence[ModuleSource]) -> Any:
    """Unpickle a processor with modules of these sources, importing changed ones anew.

    Raises ConfigurationError if this process cannot import a module as the driver has it.
    """
    if all(_loaded.get(source.name) == source.digest for source in sources):
        return pickle.loads(pickled)
    with _lock:
        _import_anew([source for source in sources if source.name in sys.modules])
        processor = pickle.loads(pickled)
        for source in sources:
            if source.name in sys.modules and source.name not in _loaded:
                _note(source.name)
            if _loaded.get(source.name, source.digest) != source.digest:
                raise _different(source.name)
        return processor


def _import_anew(sources: Sequence[ModuleSource]) -> None:
    """Import the first module that has changed and all after it, which may have imported it."""
    changed = [_loaded.get(source.name, source.digest) != source.digest for source in sources]
    if True not in changed:
        return
    importlib.invalidate_caches()
    for source in sources[changed.index(True) :]:
        importlib.reload(sys.modules[source.name])
        _note(source.name)


def _note(name: str) -> None:
    text = _source(name)
    if text is not None:
        _loaded[name] = _digest(text)


def _different(name: str) -> ConfigurationError:
    place = getattr(sys.modules[name], "__file__", None)
    return ConfigurationError(
        f"the module {name}, which the processor needs, is not the same on the driver and on this "
        f"executor, which has {place}: it was changed after the query had started, perhaps when "
        "another query of the application started with the changed module, or the machines have "
        "different versions. Put the same version on all machines, and start the query again"
    )


def _add(name: str, ordered: dict[str, str | None]) -> None:
    """Add a module of the user after the modules that it imports."""
    if name in ordered or not _is_of_user(name):
        return
    text = _source(name)
    ordered[name] = None
    for imported in () if text is None else _imports(name, text):
        _add(imported, ordered)
    # To the end, behind what it imports.
    del ordered[name]
    ordered[name] = None if text is None else _digest(text)


def _is_of_user(name: str) -> bool:
    module = sys.modules.get(name)
    if module is None or name.partition(".")[0] in _NOT_OF_USERS or name == "__main__":
        return False
    place = getattr(module, "__file__", None)
    return place is not None and _PACKAGES.isdisjoint(Path(place).parts)


def _source(name: str) -> str | None:
    """The source of a module as it is on the disk now; None if it has none."""
    module: ModuleType = sys.modules[name]
    loader: Any = getattr(getattr(module, "__spec__", None), "loader", None)
    if not hasattr(loader, "get_source"):
        return None
    try:
        text: str | None = loader.get_source(name)
    except (ImportError, OSError):
        return None
    return text


def _imports(name: str, text: str) -> Iterator[str]:
    """The names in the import statements of a module, as modules or what may be modules."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    package = sys.modules[name].__package__ or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            whole = ".".join([*(parents if node.level else ()), *filter(None, [node.module])])
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
