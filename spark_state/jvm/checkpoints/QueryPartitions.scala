package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, WaysOut}
import org.apache.spark.sql.internal.SQLConf

/**
 * Number of partitions of a query, read from the query's offset log:
 *
 *   <checkpoint>/offsets/<batch>   a line v1 or v2, then a line of JSON; "conf" has the number
 *
 * The number decides which files of a rescaled version are used. So `cowstate rescale` gives a
 * query the new state and the new number of partitions by a single edit of a single file.
 *
 * @param stateRoot <checkpoint>/state
 */
private[cowstate] final class QueryPartitions(stateRoot: String, hadoopConf: Configuration) {
  import QueryPartitions._

  private val offsets = new Path(new Path(stateRoot).getParent, "offsets")

  /**
   * Return the number of partitions at a version, from the entry of the batch that made the
   * version. While `cowstate rescale` edits the offset log, this entry may have no number: then
   * return the number in the entry of the next batch.
   */
  def at(version: Long): Int =
    Iterator(version - 1, version).flatMap(noted).nextOption().getOrElse(
      throw new CowStateException(
        s"$offsets has no entry of batch ${version - 1} or $version with $Key, so it is not known " +
          s"how many partitions version $version has: cowstate rescale left files of it. Restore " +
          s"the entries ${WaysOut.restoreOrRestartFrom(version - 1)}"))

  private def noted(batch: Long): Option[Int] = {
    val entry = new Path(offsets, batch.toString)
    read(entry).flatMap { text =>
      val lines = text.split('\n')
      lines(0).trim match {
        case Known() => ()
        case Later(version) =>
          throw new CowStateException(s"$entry has version $version of Spark's offset log, and " +
            "this release of cowstate reads up to version 2: upgrade cowstate, or run the query " +
            "on the Spark that it ran on before")
        case _ => throw damaged(entry, batch, null)
      }
      try (JsonMethods.parse(lines(1)) \ "conf" \ Key).extractOpt[String].map(_.toInt)
      catch { case NonFatal(e) => throw damaged(entry, batch, e) }
    }
  }

  private def damaged(entry: Path, batch: Long, cause: Throwable) =
    new CowStateException(
      s"$entry is not an entry of an offset log. Restore it ${WaysOut.restoreOrRestartFrom(batch)}",
      cause)

  private def read(entry: Path): Option[String] =
    try
      Some(Using.resource(entry.getFileSystem(hadoopConf).open(entry)) { in =>
        new String(in.readAllBytes(), UTF_8)
      })
    catch { case _: FileNotFoundException => None }
}

private object QueryPartitions {
  private implicit val formats: Formats = DefaultFormats
  private val Known = "v[12]".r
  private val Later = raw"v([1-9]\d*)".r
  private val Key = SQLConf.SHUFFLE_PARTITIONS.key
}
