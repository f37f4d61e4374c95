package org.apache.spark.sql.execution.streaming.state.cowstate.base

import java.io.{EOFException, IOException}
import java.nio.file.{AccessDeniedException, NoSuchFileException}

import org.apache.hadoop.fs.{ChecksumException, Path}

/**
 * Errors that the provider raises on purpose. Each error says what happened, where, and the way
 * out.
 *
 *   CowStateException
 *    +- CowStateMemoryLimitException   the executor's state exceeds its limit
 *    +- CowStateDiskException          the local disk has no room for the state, or refuses
 *    +- CowStateBusyException          another task still uses the store
 *    +- CowStateMissingException       a file of the checkpoint is missing
 *    +- CowStateCorruptException       a file of the checkpoint has other bytes than written
 *    +- CowStatePlaceException         the state is at a place where the query may not write
 *    +- CowStateFencedException        a later run of the query writes the state
 *
 * An error while loading a state or committing a batch becomes the cause of an error that has one
 * of Spark's error conditions: CowStateLoadException or CowStateCommitException.
 *
 * If a file cannot be read for the moment, the error is StateFileReadException, an IOException.
 */
class CowStateException(message: String, cause: Throwable = null)
  extends RuntimeException(message, cause)

object CowStateException {
  /** Error for a task that uses a store after its executor unloaded the store. */
  def ofUnloaded(owner: String): CowStateException =
    new CowStateException(s"$owner was unloaded; Spark will try the task again")

  /** Error for two stores of a join whose states of a version come from different attempts. */
  def ofOtherAttempt(url: String, state: StateId, beside: String): CowStateException =
    new CowStateException(
      s"$url has version ${state.version} of attempt ${state.unique}, and another store of the same " +
        s"join that of attempt $beside: files of one of them were deleted. Restore them " +
        WaysOut.restoreOrRestartFrom(state.version - 1))

  /** Error for a row longer than the largest mapped file. */
  def ofLongRow(owner: String, mostBytes: Long): CowStateException = new CowStateException(
    s"$owner: a row has more than ${mostBytes >> 20} MiB, and ${CowStateConf.Backend} = " +
      s"${CowStateConf.Disk} takes no longer one. Set it to ${CowStateConf.Heap}, or make it shorter")

  /**
   * Error for a store that has used all `most` page numbers. The address of a record has no room
   * for a larger page number.
   */
  def ofManyPages(owner: String, most: Int): CowStateException = new CowStateException(
    s"$owner has $most pages of records, and a store takes no more. Stop the query and spread its " +
      "state over more partitions (cowstate rescale), or drop state earlier (watermark, timeout)")

  /**
   * Error for a version whose state exists, but whose changes do not. `first`: oldest version from
   * which on the changes exist, if any.
   */
  def noChanges(url: String, state: StateId, first: Option[Long]): CowStateException = {
    val why =
      if (state.unique == StateId.Adopted) "it was adopted from another provider"
      else "its state was converted by cowstate adopt or rescale, or its changelog was merged or " +
        "deleted as one of an expired batch"
    val from = first.map(version =>
      s"batch ${version - 1} on: set changeStartBatchId to that or a later one").getOrElse(
      "the next batch on that runs with this provider")
    new CowStateException(
      s"$url: the changes of version ${state.version}, which batch ${state.version - 1} made, are " +
        s"not known: $why. There is a change feed from $from")
  }
}

/**
 * Raised if the query would write to another place than its own, or to a place that another query
 * uses. The error comes before any state is written.
 */
final class CowStatePlaceException(message: String) extends CowStateException(message)

object CowStatePlaceException {
  /**
   * Error for a state in another place than the session's configuration names.
   *
   * @param root  <checkpoint>/state
   * @param place place of the checkpoint's state
   * @param asked place in the session's configuration
   */
  def elsewhere(root: Path, place: String, asked: String): CowStatePlaceException =
    new CowStatePlaceException(
      s"The state of ${root.getParent} is in $place, not in ${CowStateConf.Store} = $asked, where " +
        s"it would begin empty. Move it: cowstate adopt ${root.getParent} --store $asked --apply; " +
        "or do not set the store for this query")
}

final class CowStateFencedException(message: String) extends CowStateException(message)

/** Advice for lost files of a state. */
private[cowstate] object WaysOut {
  private val Section = "\"Restart from an earlier batch\" (stop the query; in its checkpoint " +
    "delete batch n and all later ones from commits/, and those later than n from offsets/, with " +
    "their .crc files; start the query, which runs batch n again)"

  val RestoreOrRestart: String =
    s"from a copy, or restart the query from a batch before it: $Section"

  /** Advice for a lost file. `batch`: latest batch with which the query can restart. */
  def restoreOrRestartFrom(batch: Long): String =
    s"from a copy, or restart the query from batch $batch or an earlier one: $Section"

  /**
   * Advice for a lost file that no other file replaces: restore the file from a copy, or restart
   * the query from an earlier batch, so that the query makes the state of the file again.
   */
  def restoreOrRestartWithout(file: String): String = {
    val name = file.split('/').last
    val before = StateFileName.parse(name).map(own => own.from.fold(own.version - 1)(_.version))
      .orElse(HdfsStateFile.parse(name).map(_.version - 1))
    before.fold(RestoreOrRestart)(restoreOrRestartFrom)
  }
}

/**
 * Raised if the state of an executor would exceed the limit of its memory. Nothing was changed.
 *
 * @param owner      name of the store that needs the memory
 * @param heldBytes  bytes that this store holds
 * @param bytes      bytes that all stores of the executor would hold
 * @param limitBytes limit for the bytes of all stores of the executor
 */
final class CowStateMemoryLimitException(
    owner: String, heldBytes: Long, bytes: Long, limitBytes: Long)
  extends CowStateException(
    s"$owner: the state of this executor would take ${MemorySize.shown(bytes)}, more than " +
      s"${CowStateConf.MaxMemoryMb} = ${limitBytes >> 20}. This store holds " +
      s"${MemorySize.shown(heldBytes)} of it. Nothing was changed. Set ${CowStateConf.Backend} to " +
      s"${CowStateConf.Disk}, raise that limit (and the executor's memory), use more executors, or " +
      "drop state earlier (watermark, timeout)")

/**
 * Raised for failures of local files. No state is lost, because local files are either working
 * memory or wait for their upload to an object store.
 */
final class CowStateDiskException private (message: String, cause: Throwable)
  extends CowStateException(message, cause)

object CowStateDiskException {
  private val OfFullDisks = Seq("No space left", "quota exceeded", "File too large")

  def ofState(owner: String, directory: String, cause: IOException): CowStateDiskException =
    new CowStateDiskException(
      s"$owner: the state cannot be kept in $directory: $cause. The batch was not committed, and " +
        s"the state before it is in the checkpoint. ${way(cause)}, or set " +
        s"${CowStateConf.LocalDirectory} to a directory on another disk", cause)

  /** Error for a file on the local disk that waits for its upload to the object store. */
  def ofSpool(directory: String, cause: IOException): CowStateDiskException =
    new CowStateDiskException(
      s"The file for the object store cannot be kept in $directory until it is put: $cause. " +
        s"Nothing is lost. ${way(cause)}, or set spark.local.dir to a directory on another disk",
      cause)

  private def way(cause: IOException): String = cause match {
    case _: NoSuchFileException => "Create that directory on every executor"
    case _: AccessDeniedException => "Let the user of the executors write there"
    case _ if cause.toString.contains("Read-only") => "It has to be writable for the executors"
    case _ if OfFullDisks.exists(cause.toString.contains) => "Make room there"
    case _ => "See to that directory"
  }
}

private[cowstate] object MemorySize {
  private val BytesOfTenth = (1 << 20) / 10.0

  /**
   * Show bytes in MiB with one decimal, rounded up. So a number just above a limit of whole MiB
   * does not look equal to the limit.
   */
  def shown(bytes: Long): String =
    java.math.BigDecimal.valueOf(math.ceil(bytes / BytesOfTenth).toLong, 1).toString + " MiB"
}

final class CowStateBusyException(message: String) extends CowStateException(message)

object CowStateBusyException {
  def afterWaiting(owner: String, seconds: Long): CowStateBusyException = new CowStateBusyException(
    s"$owner is still used by another task after $seconds s. Spark will try this task again; if " +
      s"batches take that long, raise ${CowStateConf.LockTimeoutSeconds}")

  def ofOneTask(owner: String): CowStateBusyException = new CowStateBusyException(
    s"$owner is used by this task already: it reads the batch a second time before it has read it " +
      "to the end, as a join of the batch with itself may. Nothing was changed. Call " +
      "batch.persist() before the batch is used")
}

/** Raised for a missing file. `file`: the missing file, or a pattern of its possible names. */
final class CowStateMissingException(message: String, val file: String)
  extends CowStateException(message)

object CowStateMissingException {
  /**
   * Error for a version without a file in the directory of a store.
   *
   * @param latest latest version with a file, if any
   * @param hasOwn true if cowstate wrote a file of the directory
   */
  def ofVersion(
      url: String,
      version: Long,
      unique: Option[String],
      latest: Option[Long],
      hasOwn: Boolean,
      retained: Int): CowStateMissingException = {
    val what = s"version $version" + unique.map(u => s" with id $u").getOrElse("")
    val there = latest.map(v => s"the latest there is $v").getOrElse("there is none")
    val way =
      if (!hasOwn) {
        "If another provider wrote this checkpoint, run: cowstate adopt CHECKPOINT. If not, its " +
          s"files are lost: restore them ${WaysOut.RestoreOrRestart}"
      } else if (latest.exists(version < _)) {
        s"Versions are retained for spark.sql.streaming.minBatchesToRetain = $retained batches. If " +
          s"it is one of these, its files are lost: restore them ${WaysOut.RestoreOrRestart}"
      } else {
        s"The files that batch ${version - 1} wrote are lost: restore them " +
          WaysOut.restoreOrRestartFrom(math.min(latest.getOrElse(0L), version - 1))
      }
    new CowStateMissingException(
      s"The state of $what does not exist in $url; $there. $way", changelogOf(url, version, "*"))
  }

  /**
   * Error for a state `at` that cannot be restored, because the state is built upon `gap` and the
   * files of `gap` are missing. Files in `damaged` exist, but cannot be used.
   */
  def onTheWay(
      url: String, at: StateId, gap: StateId, damaged: Seq[String]): CowStateMissingException = {
    val because =
      if (damaged.isEmpty) "" else s" (${damaged.mkString(", ")} is damaged and was passed over)"
    new CowStateMissingException(
      s"$url: version ${at.version} is built upon version ${gap.version} with id ${gap.unique}, " +
        s"whose files are missing$because. Restore them ${WaysOut.RestoreOrRestart}",
      if (gap.unique == StateId.Adopted) s"$url/${HdfsStateFile(gap.version, isSnapshot = false)}"
      else changelogOf(url, gap.version, gap.unique))
  }

  private def changelogOf(url: String, version: Long, unique: String): String =
    f"$url/$version%019d-*-$unique-*.changelog.arrow"
}

final class CowStateCorruptException(val file: String, what: String, cause: Throwable = null)
  extends CowStateException(
    s"$file is damaged: $what. Restore the file ${WaysOut.restoreOrRestartWithout(file)}", cause)

/** Fault in the bytes of a file, in words for the user. */
private[cowstate] final class NotAsWritten(what: String) extends Exception(what)

private[cowstate] object NotAsWritten {
  def check(holds: Boolean, what: => String): Unit = if (!holds) throw new NotAsWritten(what)
}

/**
 * Failure to read a file now. Reading may succeed later: the error says nothing about the bytes.
 */
final class StateFileReadException(file: String, cause: IOException)
  extends IOException(s"$file cannot be read: $cause", cause)

object StateFileReadException {
  /**
   * Run `read`, and name the file in I/O errors. Errors about the bytes of the file pass unchanged.
   */
  def about[T](file: String)(read: => T): T =
    try read
    catch {
      case e @ (_: EOFException | _: ChecksumException | _: StateFileReadException) => throw e
      case e: IOException => throw new StateFileReadException(file, e)
    }
}
