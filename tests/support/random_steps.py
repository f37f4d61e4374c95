"""Random steps for the models of property tests.

A step is a tuple with the name of a method of the model, and with the arguments of the method.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ModelStep = tuple[Any, ...]


def step(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[ModelStep]:
    return st.tuples(st.just(method), *arguments)


def histories(steps: st.SearchStrategy[ModelStep], most: int) -> st.SearchStrategy[list[ModelStep]]:
    """Histories of all lengths alike, up to `most` steps."""
    return st.integers(0, most).flatmap(
        lambda length: st.lists(steps, min_size=length, max_size=length)
    )


def take(model: object, steps: list[ModelStep]) -> None:
    for method, *arguments in steps:
        getattr(model, method)(*arguments)
