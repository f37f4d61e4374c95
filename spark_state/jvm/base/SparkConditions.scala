package org.apache.spark.sql.execution.streaming.state.cowstate.base

import scala.util.control.NonFatal

import org.apache.spark.{QueryContext, SparkException}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state.ConvertableToCannotLoadStoreError

/**
 * Error with an error condition of Spark's own providers, for tools that look at conditions. The
 * message is the message of the cause: what happened, and the way out.
 */
private[cowstate] sealed abstract class ConditionException(
    condition: String, parameters: Map[String, String], what: String, cause: Throwable)
  extends SparkException(
    s"[$condition] $what${Option(cause.getMessage).getOrElse(cause.toString)}", cause,
    Some(condition), parameters, Array.empty[QueryContext])

/** Failure to load a state. */
final class CowStateLoadException private (
    condition: String, parameters: Map[String, String], cause: Throwable, what: String = "")
  extends ConditionException(condition, parameters, what, cause)

object CowStateLoadException {
  private val Load = "CANNOT_LOAD_STATE_STORE"
  private val Uncategorized = s"$Load.UNCATEGORIZED"

  /**
   * Run `load`, which loads a state of `version`. Each failure gets an error condition of loading.
   */
  def loading[T](version: Long)(load: => T): T = {
    if (version < 0) throw QueryExecutionErrors.unexpectedStateStoreVersion(version)
    reading(load)
  }

  /**
   * Run `read`, which reads the files of a state. Each failure gets an error condition of loading.
   */
  def reading[T](read: => T): T =
    try read
    catch { case NonFatal(e) => throw of(e) }

  private def of(error: Throwable): Throwable = error match {
    case e: SparkException if Option(e.getCondition).exists(_.startsWith(Load)) => error
    case e: ConvertableToCannotLoadStoreError => e.convertToCannotLoadStoreError()
    case e: CowStateMissingException => new CowStateLoadException(
        s"$Load.CANNOT_READ_STREAMING_STATE_FILE", Map("fileToRead" -> e.file), e)
    // If a row is damaged, the cause is Spark's own error, as with Spark's providers.
    case e: CowStateCorruptException if e.getCause.isInstanceOf[SparkException] =>
      val ofRow =
        new CowStateLoadException(Uncategorized, Map.empty, e.getCause, s"${e.getMessage} ")
      e.getSuppressed.foreach(ofRow.addSuppressed)
      ofRow
    case e => new CowStateLoadException(Uncategorized, Map.empty, e)
  }
}

/** Failure to commit the changes of a batch. `store`: name of the store. */
final class CowStateCommitException(store: String, cause: Throwable)
  extends ConditionException(
    "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", Map("providerClass" -> store),
    s"Error writing state store files for provider $store. Cannot perform commit during state " +
      "checkpoint: ", cause)
