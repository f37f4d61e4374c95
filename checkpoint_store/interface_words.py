"""Advice in the words of the interface that the user called.

A user may meet one error in a Python function, in a read with DataFrame options, and in a command.
Each interface has its own way to choose a state or an epoch. An error is created inside the call to
the interface and keeps the words of the interface, even when the error moves to another process.
Messages take every word about a user's choice from `words()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class InterfaceWords:
    """The phrases of one interface. Each phrase asks the user to do one thing. `choose_state`: name
    a state of an operator; `choose_store`: name a store of a query on the provider;
    `choose_version`: name a version or epoch, or none for the newest; `choose_epoch`: name the
    epoch of a savepoint; `set_for_spark`: give Spark a setting."""

    choose_state: str
    choose_store: str
    choose_version: str
    choose_epoch: str
    set_for_spark: str


PYTHON = InterfaceWords(
    choose_state="Pass the name of one as state",
    choose_store="Pass state=ProviderStore(operator_id, store_name, join_side)",
    choose_version="Ask for one of these, or for none to get the newest",
    choose_epoch="pass an epoch",
    set_for_spark="Set in the session's configuration",
)
OPTIONS = replace(
    PYTHON,
    choose_state="Name one with stateVarName",
    choose_store="Leave stateVarName out, and choose with operatorId, storeName or joinSide",
)
COMMAND = replace(
    PYTHON,
    choose_version="Choose one of these with --epoch, or leave it out for the newest",
    choose_epoch="choose an epoch with --epoch",
    set_for_spark="Pass with --conf, as to spark-submit,",
)

_called: ContextVar[InterfaceWords] = ContextVar("cowstate_called_interface", default=PYTHON)


def words() -> InterfaceWords:
    """Return the words for error messages that suit the interface that the user called: Python, the
    options of a DataFrame, or a command."""
    return _called.get()


@contextmanager
def in_words_of(interface: InterfaceWords) -> Iterator[None]:
    """Use the words of `interface` for errors created inside a `with`."""
    before = _called.set(interface)
    try:
        yield
    finally:
        _called.reset(before)
