"""The name of the provider's class, and the key by which Spark and its offset log name one."""

PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
