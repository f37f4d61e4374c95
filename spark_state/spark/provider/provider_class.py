"""The name of the provider's class, and the key under which Spark and its offset log name it."""

PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


def short_name(provider: str) -> str:
    """The name of a provider's class without its package."""
    return provider.rpartition(".")[2]
