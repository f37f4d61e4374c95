"""For tests: a processor without Spark, and contract suites of backends and object stores.

`ScriptedOperator` runs a StatefulProcessor over rows, times and restarts that a test gives, and
`ScriptedPandasOperator` one of the pandas API.

The contract suites are for those who write a backend of keyed state or an object store of their
own. A suite is a class of pytest tests. Derive one whose name begins with `Test`, and say in its
fixture what is to be tested:

    class TestMyObjectStore(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> ObjectStore:
            return MyObjectStore(tmp_path)

The suites need pytest, which cowstate does not install. They are imported when they are asked for.
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
