package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.SPARK_VERSION
import org.apache.spark.internal.Logging

/**
 * Whether this jar may change what Spark plans, and check its statements. Both touch classes that
 * Spark changes from version to version. On a version that the jar was not made for, Spark does as
 * without the jar; also from then on that a class turns out to be another one than in a version that
 * the jar was made for, as in a Spark that somebody changed. One line of the log says so.
 */
private[sql] final class SparkInternals(version: String) extends Logging {
  @volatile private var areKnown =
    OfSpark.Versions.exists(minor => version == minor || version.startsWith(s"$minor."))

  if (!areKnown) warn(s"this is Spark $version", None)

  /** What `change` gives; `unchanged` if Spark is to do as without the jar. */
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
