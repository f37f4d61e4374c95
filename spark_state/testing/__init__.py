"""For tests: a processor without Spark, and contract suites of backends and object stores.

`ScriptedOperator` runs a StatefulProcessor over the rows, times and restarts of a test.
`ScriptedPandasOperator` runs a processor of the pandas API.

The contract suites are for authors of a keyed state backend or of an object store. A suite is a
class of pytest tests. Derive a class with a name that begins with `Test`, and return the object to
test from the fixture:

    class TestMyObjectStore(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> ObjectStore:
            return MyObjectStore(tmp_path)

The suites need pytest, and cowstate does not install pytest. So a suite is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_state.testing.scripted_operator import ScriptedOperator, ScriptedPandasOperator

if TYPE_CHECKING:
    from spark_state.testing.keyed_state_backend_contract import KeyedStateBackendContract
    from spark_state.testing.object_store_contract import ObjectStoreContract

__all__ = [
    "KeyedStateBackendContract",
    "ObjectStoreContract",
    "ScriptedOperator",
    "ScriptedPandasOperator",
]

_SUITES = {
    "KeyedStateBackendContract": "keyed_state_backend_contract",
    "ObjectStoreContract": "object_store_contract",
}


def __getattr__(name: str) -> Any:
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_SUITES[name]}"), name)
