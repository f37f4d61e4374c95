"""What a Python worker says in which cowstate is not installed.

Spark pickles what its workers run. The pickle only names classes and functions of ours, so where
cowstate is missing the worker cannot load it, and tells no more than the name of a module. What is
here is pickled by value, around such a pickle, and tells more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from spark_state.processor.pickles import dumps

_T = TypeVar("_T")


def loaded_in_workers(value: Any) -> Callable[[], Any]:
    """A function that gives `value` in a Python worker. Where a module is missing for it, the error
    names the interpreters of the worker and of the driver."""
    payload, driver = dumps(value), sys.executable

    def load() -> Any:
        # Pickled by value, so that it is there without cowstate: it can use nothing from outside.
        import pickle
        import sys

        try:
            return pickle.loads(payload)
        except ModuleNotFoundError as error:
            version = ".".join(map(str, sys.version_info[:3]))
            raise ModuleNotFoundError(
                f"{error}: this Python worker runs {sys.executable} (Python {version}), in which "
                f"cowstate or something that it needs is missing; the driver runs {driver}. "
                "Install the same packages in both, or set PYSPARK_PYTHON (with spark-submit: "
                "--conf spark.pyspark.python=…) to an interpreter that has them on every machine",
                name=error.name,
            ) from error

    return load


def called_in_workers(function: Callable[..., _T]) -> Callable[..., _T]:
    """A function that Spark may call in a Python worker, and that calls this one there. See
    `loaded_in_workers`."""
    load = loaded_in_workers(function)

    def call(*arguments: Any) -> _T:
        return load()(*arguments)  # type: ignore[no-any-return]

    return call


class LoadedInWorkers:
    """Base of what Spark pickles for its workers: loaded as by `loaded_in_workers`.

    A subclass has no slots. Only cloudpickle, which Spark uses, can pickle it.
    """

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return loaded_in_workers(_Plain(self)), ()


class _Plain:
    """Pickles as the object that it holds would without LoadedInWorkers."""

    def __init__(self, held: object) -> None:
        self._held = held

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self._held), vars(self._held))


def _restored(kind: type, attributes: dict[str, Any]) -> object:
    restored: object = object.__new__(kind)
    vars(restored).update(attributes)
    return restored
