"""Parameters that had another name in earlier releases go on working by that name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def with_old_name(old: str, new: str) -> Callable[[_F], _F]:
    """Decorates a function whose parameter `new` may be given by keyword as `old`, too."""

    def decorated(function: _F) -> _F:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{old} is the old name of {new}: give {new} only")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return decorated
