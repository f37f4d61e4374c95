package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.{EOFException, IOException}

import org.apache.hadoop.fs.ChecksumException

/**
 * Errors that the provider raises on purpose; each says what happened, where, and the way out.
 *
 *   CowStateException
 *    +- CowStateMemoryLimitException   the executor's state exceeds its limit
 *    +- CowStateBusyException          another task still uses the store
 *    +- CowStateMissingException       a file of the checkpoint is not there
 *    +- CowStateCorruptException       a file of the checkpoint is not what was written
 *
 * Reading a file may also fail as reading any file may: StateFileReadException, an IOException.
 */
class CowStateException(message: String, cause: Throwable = null)
  extends RuntimeException(message, cause)

object CowStateException {
  /** `firstOwn` is the oldest version upon the adopted ones, if there is one. */
  def noChanges(url: String, adopted: Long, firstOwn: Option[Long]): CowStateException = {
    val from = firstOwn.map(version =>
      s"batch ${version - 1} on: set changeStartBatchId to that or a later one").getOrElse(
      "the first batch on that runs with this provider")
    new CowStateException(
      s"$url: version $adopted, which batch ${adopted - 1} made, was adopted from another " +
        s"provider, and its changes are not known. There is a change feed from $from")
  }
}

final class CowStateMemoryLimitException(owner: String, bytes: Long, limitBytes: Long)
  extends CowStateException(
    s"$owner: the state of this executor would take ${bytes >> 20} MiB, more than " +
      s"${CowStateConf.MaxMemoryMb} = ${limitBytes >> 20}. Nothing was changed. Raise that limit " +
      "(and the executor's memory), use more executors, or drop state earlier (watermark, timeout)")

final class CowStateBusyException(owner: String, seconds: Long)
  extends CowStateException(
    s"$owner is still used by another task after $seconds s. Spark will try this task again; if " +
      s"batches take that long, raise ${CowStateConf.LockTimeoutSeconds}")

/** @param file the one that is missing, if it is not a whole version */
final class CowStateMissingException(message: String, val file: Option[String] = None)
  extends CowStateException(message)

final class CowStateCorruptException(val file: String, what: String, cause: Throwable = null)
  extends CowStateException(
    s"$file is damaged: $what. Restore the file from a copy, or restart the query from a batch " +
      "before it", cause)

/** A file cannot be read now; nothing is said about its bytes, so it may be read later. */
final class StateFileReadException(file: String, cause: IOException)
  extends IOException(s"$file cannot be read: $cause", cause)

object StateFileReadException {
  /** Name the file in errors of reading it, other than those that tell of its bytes. */
  def about[T](file: String)(read: => T): T =
    try read catch {
      case e @ (_: EOFException | _: ChecksumException | _: StateFileReadException) => throw e
      case e: IOException => throw new StateFileReadException(file, e)
    }
}
