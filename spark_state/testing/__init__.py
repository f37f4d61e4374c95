"""For tests: a processor without Spark, and the contract suite of object stores.

`ScriptedOperator` runs a StatefulProcessor over the rows, times and restarts of a test.
`ScriptedPandasOperator` runs a processor of the pandas API.

The contract suite is a class of pytest tests. Derive a class with a name that begins with `Test`,
and return the store to test from the fixture:

    class TestMyObjectStore(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> ObjectStore:
            return MyObjectStore(tmp_path)

The suite needs pytest, and cowstate does not install pytest. So the suite is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_state.testing.scripted_operator import ScriptedOperator, ScriptedPandasOperator

if TYPE_CHECKING:
    from spark_state.testing.object_store_contract import ObjectStoreContract

__all__ = [
    "ObjectStoreContract",
    "ScriptedOperator",
    "ScriptedPandasOperator",
]


def __getattr__(name: str) -> Any:
    if name != "ObjectStoreContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark_state.testing.object_store_contract import ObjectStoreContract

    return ObjectStoreContract
