"""Makes a Python worker without cowstate fail with a clear error.

Spark pickles the functions that its workers run. A pickle only names cowstate's classes and
functions, so a worker without cowstate cannot load the pickle, and the error shows only a module
name. The functions of this module are pickled by value, wrap such a pickle, and raise an error that
tells the user how to fix the worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any, TypeVar

from spark_state.processor.pickles import dumps

_T = TypeVar("_T")


def called_in_workers(function: Callable[..., _T]) -> Callable[..., _T]:
    """A function that calls `function` in a Python worker. If the worker lacks a module, the error
    names the interpreters of the worker and of the driver, and the command that installs this
    version of cowstate."""
    payload, driver, ours = dumps(function), sys.executable, requirement()

    def call(*arguments: Any) -> _T:
        # Pickled by value and run without cowstate, so the function does its own imports.
        import pickle
        import sys

        try:
            loaded = pickle.loads(payload)
        except ModuleNotFoundError as error:
            version = ".".join(map(str, sys.version_info[:3]))
            raise ModuleNotFoundError(
                f"{error}: this Python worker runs {sys.executable} (Python {version}), which "
                f"lacks cowstate or a package that cowstate needs; the driver runs {driver}. Run "
                f"`{sys.executable} -m pip install {ours}` on every machine, or set "
                "PYSPARK_PYTHON (with spark-submit: --conf spark.pyspark.python=…) to an "
                "interpreter that has the packages of the driver",
                name=error.name,
            ) from error
        return loaded(*arguments)  # type: ignore[no-any-return]

    return call


def requirement() -> str:
    """This version of cowstate, as pip takes it."""
    try:
        return f"cowstate=={metadata.version('cowstate')}"
    except metadata.PackageNotFoundError:  # the source tree is on the path, and not installed
        return "cowstate"


class LoadedInWorkers:
    """Base of classes whose objects Spark pickles for its workers; see `called_in_workers`. A
    subclass has no slots. Only cloudpickle, the pickler of Spark, can pickle the objects."""

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return called_in_workers(partial(_restored, type(self), vars(self))), ()


def _restored(kind: type, attributes: dict[str, Any]) -> object:
    restored: object = object.__new__(kind)
    vars(restored).update(attributes)
    return restored
