"""Calls of PySpark's states and handle, which are of one key, on those of many keys: an error that
names the call for many keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NoReturn


class ForManyKeys:
    """Base of what an ArrowStatefulProcessor gets. `calls_of_rows`: what a processor of rows would
    call, and what to call here.

    The error is an AttributeError, so `hasattr` says that the call is not there.
    """

    calls_of_rows: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> NoReturn:
        kind = type(self).__name__
        call = self.calls_of_rows.get(name)
        if call is None:
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
        raise AttributeError(
            f"{kind} has no {name}, which is for one key in a processor of rows; call {call}",
            name=name,
            obj=self,
        )
