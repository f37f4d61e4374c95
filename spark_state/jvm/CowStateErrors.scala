package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * Errors that the provider raises on purpose; each says what happened, where, and the way out.
 *
 *   CowStateException
 *    +- CowStateMemoryLimitException   the executor's state exceeds its limit
 *    +- CowStateBusyException          another task still uses the store
 *    +- CowStateMissingException       a file of the checkpoint is not there
 *    +- CowStateCorruptException       a file of the checkpoint cannot be read
 */
class CowStateException(message: String, cause: Throwable = null)
  extends RuntimeException(message, cause)

final class CowStateMemoryLimitException(owner: String, bytes: Long, limitBytes: Long)
  extends CowStateException(
    s"$owner: the state of this executor would take ${bytes >> 20} MiB, more than " +
      s"${CowStateConf.MaxMemoryMb} = ${limitBytes >> 20}. Nothing was changed. Raise that limit " +
      "(and the executor's memory), use more executors, or drop state earlier (watermark, timeout)")

final class CowStateBusyException(owner: String, seconds: Long)
  extends CowStateException(
    s"$owner is still used by another task after $seconds s. Spark will try this task again; if " +
      s"batches take that long, raise ${CowStateConf.LockTimeoutSeconds}")

final class CowStateMissingException(message: String) extends CowStateException(message)

final class CowStateCorruptException(file: String, what: String, cause: Throwable = null)
  extends CowStateException(
    s"$file is damaged: $what. Restore the file from a copy, or restart the query from a batch " +
      "before it", cause)
