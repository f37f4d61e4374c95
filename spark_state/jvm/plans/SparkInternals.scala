package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.SPARK_VERSION
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.OfSpark

/**
 * Decides if this jar may change the plans of Spark and check the statements. Both need classes
 * that differ between versions of Spark. On a version for which the jar was not made, Spark works
 * as without the jar. The same holds as soon as a class differs from the class for which the jar
 * was made, for example in a modified Spark. One line of the log tells the reason.
 */
private[sql] final class SparkInternals(version: String) extends Logging {
  @volatile private var areKnown =
    OfSpark.Versions.exists(minor => version == minor || version.startsWith(s"$minor."))

  if (!areKnown) warn(s"this is Spark $version", None)

  /** Return `change`, or `unchanged` if Spark is to work as without the jar. */
  def changing[T](unchanged: T)(change: => T): T =
    if (!areKnown) unchanged
    else {
      try change
      catch {
        case e: LinkageError =>
          leave(e)
          unchanged
      }
    }

  private def leave(error: LinkageError): Unit = synchronized {
    if (areKnown) {
      areKnown = false
      warn(s"this Spark $version has other classes", Some(error))
    }
  }

  private def warn(what: String, error: Option[LinkageError]): Unit = {
    val message = s"cowstate's jar was made for Spark ${OfSpark.Versions.mkString(" and ")}, and " +
      s"$what. So plans of queries stay as they are, which costs time, and statements that replace " +
      "or alter tables of cowstate are not checked. Install a release of cowstate for this Spark"
    error.fold(logWarning(message))(logWarning(message, _))
  }
}

private[sql] object SparkInternals {
  private lazy val ofThisSpark = new SparkInternals(SPARK_VERSION)

  def changing[T](unchanged: T)(change: => T): T = ofThisSpark.changing(unchanged)(change)
}
