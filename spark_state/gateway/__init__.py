"""The gateway: a process of each executor that stores the files of the state store provider on any
object store. The provider itself is Scala, see `spark_state/jvm/gateway`."""
