"""The class names of providers, and the key of the class name in Spark's configuration and in the
offset log."""

PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider"
ROCKSDB_CLASS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


def short_name(provider: str) -> str:
    """The name of a provider's class without its package."""
    return provider.rpartition(".")[2]
