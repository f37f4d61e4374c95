"""The names of the classes of providers, and the key under which Spark and its offset log name
them."""

PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider"
ROCKSDB_CLASS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


def short_name(provider: str) -> str:
    """The name of a provider's class without its package."""
    return provider.rpartition(".")[2]
