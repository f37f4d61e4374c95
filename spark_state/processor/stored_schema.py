"""Spark schemas from the JSON text in stores.

Spark's own reader of the text imports, calls and unpickles the class of a user-defined type. Here
nothing from a store is executed. A class is used only if the class belongs to pyspark.ml or to an
already loaded module. Any other user-defined type is replaced by the SQL type of its values.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from pyspark.sql.types import StructType, UserDefinedType


def struct_from_json(schema_json: str) -> StructType:
    """Parse the JSON text of a Spark schema."""
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
    """Return True if the name belongs to a user-defined type that may be used."""
    module, _, name = class_name.rpartition(".")
    if module.startswith("pyspark.ml."):
        try:
            import_module(module)
        except ImportError:
            return False
    of_name = getattr(sys.modules.get(module), name, None)
    return isinstance(of_name, type) and issubclass(of_name, UserDefinedType)
