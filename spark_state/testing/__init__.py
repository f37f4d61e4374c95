"""Contract suites for those who write a backend of keyed state or an object store of their own.

A suite is a class of pytest tests. Derive one whose name begins with `Test`, and say in its fixture
what is to be tested:

    class TestMyObjectStore(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> ObjectStore:
            return MyObjectStore(tmp_path)

It needs pytest, which cowstate does not install.
"""

from spark_state.testing.keyed_state_backend_contract import KeyedStateBackendContract
from spark_state.testing.object_store_contract import ObjectStoreContract

__all__ = ["KeyedStateBackendContract", "ObjectStoreContract"]
