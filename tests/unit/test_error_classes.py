"""All error classes of the packages have one root and survive pickling to another process."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import checkpoint_store
import cowstate
import datasources
import spark_state
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.errors import (
    CowstateError,
    ObjectMissingError,
    TableMismatchError,
    VersionMissingError,
)

PACKAGES = (checkpoint_store, spark_state, datasources, cowstate)
# setup.py runs the module of this error before the package is installed.
WITHOUT_THE_ROOT = {"ScalaCompilerError"}
# A value of each type of an error's field; the keys are spelled like annotations.
VALUES: dict[str, Any] = {
    "str": "s3://bucket/store",
    "str | None": "state",
    "int": 7,
    "int | None": 8,
    "float": 1.5,
    "bool": True,
    "object": "anything",
    "Run": Run(2, "f47a"),
    "dict[str, str]": {"timeMode": "foo"},
    "tuple[str, ...]": ("a",),
    "tuple[int, ...]": (1, 2),
    "tuple[int, int]": (1, 3),
    "tuple[tuple[Any, ...], ...]": (("x",),),
    "tuple[tuple[int, tuple[str, ...]], ...]": ((0, ("left", "right")),),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def modules_of(package: ModuleType) -> list[ModuleType]:
    walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [info.name for info in walked if not info.name.endswith("__main__")]
    return [package, *map(importlib.import_module, names)]


def error_classes() -> list[type[BaseException]]:
    classes = {
        defined
        for package in PACKAGES
        for module in modules_of(package)
        for defined in vars(module).values()
        if inspect.isclass(defined)
        and issubclass(defined, BaseException)
        and defined.__module__ == module.__name__
    }
    return sorted(classes, key=lambda defined: (defined.__module__, defined.__name__))


RAISED = [defined for defined in error_classes() if not defined.__name__.startswith("_")]
ERRORS: list[type[Any]] = [defined for defined in RAISED if issubclass(defined, CowstateError)]


def values_of(error_class: type[Any]) -> dict[str, Any]:
    """Return a value for each field of the class; no values for a class with only a message."""
    if not dataclasses.is_dataclass(error_class):
        return {}
    return {field.name: VALUES[str(field.type)] for field in dataclasses.fields(error_class)}


def instances(error_class: type[Any]) -> list[Exception]:
    """Return an error made with positional arguments, and an error made with keywords."""
    values = values_of(error_class)
    if not values:
        return [error_class("what happened")]
    return [error_class(*values.values()), error_class(**values)]


def own_values(error: BaseException) -> dict[str, Any]:
    """Return an error's values without PySpark's reader of error conditions."""
    return {name: value for name, value in vars(error).items() if name != "_error_reader"}


def test_every_error_that_is_raised_on_purpose_has_the_one_root() -> None:
    strangers = {defined.__name__ for defined in RAISED if not issubclass(defined, CowstateError)}
    assert strangers == WITHOUT_THE_ROOT
    assert {ERRORS[0], TableMismatchError, VersionMissingError} < set(ERRORS)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("error_class", ERRORS)
def test_an_error_keeps_its_values_through_copies(
    error_class: type[Any], copied: Callable[[Any], Any]
) -> None:
    for error in instances(error_class):
        error.add_note("seen by a subtask")
        again = copied(error)
        assert type(again) is error_class
        assert own_values(again) == own_values(error)
        assert again.args == error.args
        assert str(again) == str(error)


@pytest.mark.parametrize("error_class", ERRORS)
def test_the_args_of_an_error_are_all_its_values(error_class: type[Any]) -> None:
    values = values_of(error_class)
    for error in instances(error_class):
        assert error.args == (tuple(values.values()) or ("what happened",))
        assert {name: getattr(error, name) for name in values} == values


@pytest.mark.parametrize("error_class", ERRORS)
def test_an_error_equals_itself_alone_and_can_be_in_a_set(error_class: type[Any]) -> None:
    first, second = instances(error_class)[0], instances(error_class)[0]
    assert first != second
    assert len({first, second}) == 2


def test_values_that_are_left_out_are_args_too() -> None:
    assert ObjectMissingError("url", "name").args == ("url", "name", None)
