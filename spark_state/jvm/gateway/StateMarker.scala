package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.{FileNotFoundException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.json4s.JString

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/**
 * Where the state of a checkpoint is, if it is in an object store: a small file of the checkpoint,
 * `<checkpoint>/state/cowstate-store.json`. It is the truth: a session that names no store reads
 * and writes there, too.
 *
 *   {"body":{"directory":"<query id>","url":"s3://bucket/prefix"},
 *    "checksum":"<sha256>","format":"cowstate/state-place","version":1}
 *
 * The files are then in `<url>/<directory>/state/<operator>/<partition>[/<store>]`, under the names
 * that they would have in the checkpoint.
 */
final case class StateMarker(url: String, directory: String) {
  private[cowstate] def text: String = StoreDocument.encoded(
    StateMarker.Kind, Seq("directory" -> JString(directory), "url" -> JString(url)))
}

private[cowstate] object StateMarker {
  val Name = "cowstate-store.json"
  private val Kind = "state-place"

  /** Throws CowStateException for one that is damaged. `root`: `<checkpoint>/state`. */
  def read(root: Path, conf: Configuration): Option[StateMarker] = {
    val path = new Path(root, Name)
    val text =
      try Some(textOf(path.getFileSystem(conf).open(path)))
      catch { case _: FileNotFoundException => None }
    text.map { written =>
      StoreDocument.decoded(Kind, written).map(body => (body \ "url", body \ "directory")) match {
        case Right((JString(url), JString(directory))) => StateMarker(url, directory)
        case Right(_) => throw damaged(path, "it names no place")
        case Left(problem) => throw damaged(path, problem)
      }
    }
  }

  /**
   * Write the marker of a checkpoint that has none, and read what is there: another task may have
   * been first. All tasks of a run write the same.
   */
  def create(root: Path, conf: Configuration, marker: StateMarker): StateMarker = {
    writeOnce(new Path(root, Name), conf, marker.text)
    read(root, conf).getOrElse(
      throw new CowStateException(s"$root/$Name is gone as soon as it was written"))
  }

  /** Create a file of a checkpoint, unless it is there. */
  def writeOnce(path: Path, conf: Configuration, text: String): Unit = {
    val directory = path.getParent
    val manager = CheckpointFileManager.create(directory, conf)
    if (!manager.exists(path)) {
      if (!manager.exists(directory)) manager.mkdirs(directory)
      val out = manager.createAtomic(path, overwriteIfPossible = false)
      try {
        out.write(text.getBytes(UTF_8))
        out.close()
      } catch {
        case _: FileAlreadyExistsException => out.cancel()
        case e: Throwable =>
          out.cancel()
          throw e
      }
    }
  }

  private def textOf(stream: InputStream): String =
    Using.resource(stream)(in => new String(in.readAllBytes(), UTF_8))

  private def damaged(path: Path, problem: String) = new CowStateException(
    s"$path, which says where the state of the checkpoint is, cannot be used: $problem. Restore " +
      "it from a copy of the checkpoint")
}
