"""Spark schemas from the JSON text that stores have.

Spark's own reader of that text imports, calls and unpickles what a user-defined type in it names.
Nothing from a store is executed: only a class of PySpark, or of a module that this process has
loaded already, is taken for such a type. In place of any other type stands the SQL type in which
its values are stored.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from pyspark.sql.types import StructType, UserDefinedType


def struct_from_json(schema_json: str) -> StructType:
    """The Spark schema of its JSON text."""
    return StructType.fromJson(_with_known_classes(json.loads(schema_json)))


def _with_known_classes(described: Any) -> Any:
    if isinstance(described, list):
        return [_with_known_classes(element) for element in described]
    if not isinstance(described, dict):
        return described
    if described.get("type") == "udt" and not _is_known(str(described.get("pyClass"))):
        return _with_known_classes(described["sqlType"])
    return {
        key: value if key == "metadata" else _with_known_classes(value)
        for key, value in described.items()
    }


def _is_known(class_name: str) -> bool:
    """Whether a name is that of a user-defined type that may be used."""
    module, _, name = class_name.rpartition(".")
    if module.startswith("pyspark.ml."):
        try:
            import_module(module)
        except ImportError:
            return False
    of_name = getattr(sys.modules.get(module), name, None)
    return isinstance(of_name, type) and issubclass(of_name, UserDefinedType)
