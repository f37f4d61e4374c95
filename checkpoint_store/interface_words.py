"""Advice in the words of the interface that the user has called.

One error is met by a caller of a Python function, by a read with options of a DataFrame, and by a
command, and each of them chooses a state or an epoch in other words. Errors are made where the
interface is called, so they keep its words, also when they go to another process. Messages name
what a user can choose with `words()` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Words:
    """How an interface says it. choose_state: name a state of an operator; choose_store: name a
    store of a query on the provider; no_store: do not; choose_version: name a version or epoch;
    or_newest: what to do for the newest; choose_epoch: name the epoch of a savepoint;
    set_for_spark: give Spark a setting."""

    choose_state: str
    choose_store: str
    no_store: str
    choose_version: str
    or_newest: str
    choose_epoch: str
    set_for_spark: str


PYTHON = Words(
    choose_state="Pass the name of one as state",
    choose_store="Pass state=ProviderStore(operator_id, store_name, join_side)",
    no_store="A ProviderStore chooses in the checkpoint of a query: pass the name of a state, or "
    "leave state out",
    choose_version="Ask for one of these",
    or_newest="or for none to get the newest",
    choose_epoch="pass an epoch",
    set_for_spark="Set in the session's configuration",
)
OPTIONS = replace(
    PYTHON,
    choose_state="Name one with stateVarName",
    choose_store="Leave stateVarName out, and choose with operatorId, storeName or joinSide",
    no_store="operatorId, storeName and joinSide choose in the checkpoint of a query: leave them "
    "out",
)
COMMAND = replace(
    PYTHON,
    choose_version="Choose one of these with --epoch",
    or_newest="or leave it out for the newest",
    choose_epoch="choose an epoch with --epoch",
    set_for_spark="Pass with --conf, as to spark-submit,",
)

_called: ContextVar[Words] = ContextVar("cowstate_called_interface", default=PYTHON)


def words() -> Words:
    """The words of the interface that is called."""
    return _called.get()


@contextmanager
def in_words_of(interface: Words) -> Iterator[None]:
    """Calls in a `with` come through this interface."""
    before = _called.set(interface)
    try:
        yield
    finally:
        _called.reset(before)
