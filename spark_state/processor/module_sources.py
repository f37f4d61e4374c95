"""Versions of the modules that a processor's pickle names, compared between driver and host.

A pickle names classes and functions of modules that can be imported. A state host and a Python
worker live longer than a query. If a module changes meanwhile, in a notebook or by a deployment,
the process would go on with the old module. So the driver notes a digest of the source of each of
the user's modules, and the process that loads the processor compares the digests:

    driver   pickle -> named modules and all their imports -> digests               sources_of
    host     same digests: load as before                                           load_processor
             other digests: import the changed modules again, and compare again; if a digest
             still differs, the process has another version of the file: an error

Modules of the standard library, modules of installed packages, and modules without source are left
out.
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
    """A module of the user, and the SHA-256 of the module's source."""

    name: str
    digest: str


def sources_of(pickled: bytes) -> tuple[ModuleSource, ...]:
    """Return the user's modules that a pickle needs, each module after its imports."""
    ordered: dict[str, str | None] = {}
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str):
            _add(argument, ordered)
    return tuple(ModuleSource(name, digest) for name, digest in ordered.items() if digest)


def load_processor(pickled: bytes, sources: Sequence[ModuleSource]) -> Any:
    """Unpickle a processor with modules of these sources. Imports changed modules again.

    Raises ConfigurationError if this process cannot import the driver's version of a module.
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
    """Import the first changed module again, and all later modules, because a later module may have
    imported the changed module."""
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
    """Add a module of the user after the module's imports."""
    if name in ordered or not _is_of_user(name):
        return
    text = _source(name)
    ordered[name] = None
    for imported in () if text is None else _imports(name, text):
        _add(imported, ordered)
    # Moves the module to the end, after its imports.
    del ordered[name]
    ordered[name] = None if text is None else _digest(text)


def _is_of_user(name: str) -> bool:
    module = sys.modules.get(name)
    if module is None or name.partition(".")[0] in _NOT_OF_USERS or name == "__main__":
        return False
    place = getattr(module, "__file__", None)
    return place is not None and _PACKAGES.isdisjoint(Path(place).parts)


def _source(name: str) -> str | None:
    """Return the source of a module as on the disk now; None without source."""
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
    """Yield the names in the import statements of a module. A name may be no module."""
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
