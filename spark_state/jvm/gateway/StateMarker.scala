package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.{FileNotFoundException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => LocalPath, Paths}

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  ChecksumException, FileAlreadyExistsException, Path, StreamCapabilities
}
import org.json4s.JString

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.files.LocalStateDirectory

/**
 * Place of a checkpoint's state in an object store: a small file of the checkpoint,
 * `<checkpoint>/state/cowstate-store.json`. The marker decides: a session that names no store also
 * reads and writes at the place in the marker.
 *
 *   {"body":{"directory":"<query id>","url":"s3://bucket/prefix"},
 *    "checksum":"<sha256>","format":"cowstate/state-place","version":1}
 *
 * The files are then in `<url>/<directory>/state/<operator>/<partition>[/<store>]`, under the same
 * names as in the checkpoint.
 */
final case class StateMarker(url: String, directory: String) {
  private[cowstate] def text: String = StoreDocument.encoded(
    StateMarker.Kind, Seq("directory" -> JString(directory), "url" -> JString(url)))
}

private[cowstate] object StateMarker {
  val Name = "cowstate-store.json"
  private val Kind = "state-place"
  /**
   * Number of directories to sync above a file: for a file in `<checkpoint>/state/<directory>`, up
   * to the checkpoint's.
   */
  private val Ancestors = 3

  /**
   * Read the marker; None if there is no marker. Throws CowStateException for a damaged marker.
   * `root`: `<checkpoint>/state`.
   */
  def read(root: Path, conf: Configuration): Option[StateMarker] = {
    val path = new Path(root, Name)
    val text =
      try Some(textOf(path.getFileSystem(conf).open(path)))
      catch {
        case _: FileNotFoundException => None
        case e: ChecksumException => throw damaged(path, e.getMessage)
      }
    text.map { written =>
      StoreDocument.decoded(Kind, written).map(body => (body \ "url", body \ "directory")) match {
        case Right((JString(url), JString(directory))) if staysBelow(directory) =>
          StateMarker(url, directory)
        case Right(_) => throw damaged(path, "it names no place")
        case Left(problem) => throw damaged(path, problem)
      }
    }
  }

  /**
   * Write the marker, unless the checkpoint has one. Return the checkpoint's marker, which another
   * task may have written first. All tasks of a run write the same marker.
   */
  def create(root: Path, conf: Configuration, marker: StateMarker): StateMarker = {
    writeOnce(new Path(root, Name), conf, marker.text)
    read(root, conf).getOrElse(
      throw new CowStateException(s"$root/$Name is gone as soon as it was written"))
  }

  /**
   * Create a file of a checkpoint, unless the file exists. The state in the store depends on the
   * file, so the file survives a power failure, like a durable file of a StateDirectory.
   */
  def writeOnce(path: Path, conf: Configuration, text: String): Unit = {
    val directory = path.getParent
    val manager = CheckpointFileManager.create(directory, conf)
    if (!manager.exists(path)) {
      if (!manager.exists(directory)) manager.mkdirs(directory)
      val out = manager.createAtomic(path, overwriteIfPossible = false)
      try {
        out.write(text.getBytes(UTF_8))
        if (out.hasCapability(StreamCapabilities.HSYNC)) out.hsync()
        out.close()
      } catch {
        case _: FileAlreadyExistsException => out.cancel()
        case e: Throwable =>
          out.cancel()
          throw e
      }
    }
    val qualified = path.getFileSystem(conf).makeQualified(path).toUri
    if (qualified.getScheme == "file") syncLocal(Paths.get(qualified.getPath))
  }

  /** Sync a local file just written by any task: Hadoop's local streams cannot sync. */
  private def syncLocal(file: LocalPath): Unit = {
    val checksums = file.resolveSibling(s".${file.getFileName}.crc")
    val above = Iterator.iterate(file.getParent)(_.getParent).take(Ancestors)
    val files = Iterator(file, checksums).filter(Files.exists(_))
    (files ++ above.takeWhile(at => at != null && Files.isReadable(at)))
      .foreach(LocalStateDirectory.sync)
  }

  /** True if a directory joined to a URL stays below the URL. */
  private def staysBelow(directory: String): Boolean =
    !directory.split("/", -1).exists(Set("", ".", "..")) && !directory.contains('\u0000')

  private def textOf(stream: InputStream): String =
    Using.resource(stream)(in => new String(in.readAllBytes(), UTF_8))

  private def damaged(path: Path, problem: String) = new CowStateException(
    s"$path, which says where the state of the checkpoint is, cannot be used: $problem. Restore " +
      "it from a copy of the checkpoint, or write it again: its bytes are those of " +
      "StatePlace(url, directory).encode() in checkpoint_store.provider.state_place, with the URL " +
      s"of the store and the id in ${path.getParent.getParent}/metadata, unless cowstate adopt " +
      s"chose another directory. Delete .$Name.crc beside it then")
}
