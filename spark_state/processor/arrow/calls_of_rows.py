"""Errors for calls in the form of PySpark's states and handle, which handle one key at a time. The
error names the call for many keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NoReturn


class ForManyKeys:
    """Base of the handle and the states of an ArrowStatefulProcessor. `calls_of_rows`: calls of a
    row processor, each with the corresponding call for many keys.

    The error is an AttributeError, so `hasattr` returns False.
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
