"""Scalars of NumPy and pandas as values of Python's own types. Imports neither library."""

from __future__ import annotations

from typing import Any


def python_value(value: Any) -> Any:
    """Convert a scalar of NumPy, or a Timestamp or Timedelta of pandas, to a value of Python's own
    type. Any other value stays as it is. Raises ValueError for a time finer than a microsecond,
    which Python does not have, and TypeError for pandas' NaT."""
    if type(value).__module__.startswith("pandas"):
        return _of_pandas(value)
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "shape", None) != ():
        return value
    if value.dtype.kind in "mM":
        return _time_of_numpy(value)
    return item()


def _of_pandas(value: Any) -> Any:
    convert = getattr(value, "to_pydatetime", None) or getattr(value, "to_pytimedelta", None)
    if convert is None:
        return value
    if value != value:
        raise TypeError  # NaT has both methods, too
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise ValueError("finer than a microsecond")
    return convert()


def _time_of_numpy(value: Any) -> Any:
    item = value.item()
    if not isinstance(item, int):
        return item
    micros = value.astype(f"{value.dtype.kind}8[us]")
    if micros != value:
        raise ValueError("finer than a microsecond, or without a unit")
    return micros.item()


def is_missing(value: Any) -> bool:
    """Return True for a null: None, pandas' NA, or NumPy's NaT."""
    if value is None or type(value).__name__ == "NAType":
        return True
    is_time = getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M")
    return is_time and value.shape == () and bool(value != value)
