package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.{EOFException, OutputStream}

import scala.collection.concurrent.TrieMap

import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  StateDirectory, StateDirectoryErrors, StateFileInput, StateFileOutput
}

/**
 * Files of one store, as objects below `path`. A file becomes an object at its commit, and is then
 * durable. `claim`: claim that a writer needs from `beginWriting` on; None if no other run can
 * write.
 *
 * The lengths of listed and written files are kept. So a restore makes a single request for a small
 * file, and gets the whole file. For a large file, the first request gets the end with the footer.
 */
private[cowstate] final class GatewayStateDirectory(
    objects: GatewayObjects, path: String, claim: Option[RunClaim]) extends StateDirectory {
  import GatewayStateDirectory._

  private val lengthsOfFiles = TrieMap.empty[String, Long]
  @volatile private var isListedByWriter = false

  override val url: String = s"${objects.url}/$path"
  override val isInStore: Boolean = true

  override def beginWriting(version: Long): Boolean = {
    claim.foreach(_.hold(version))
    !isListedByWriter
  }

  override def mayWrite: Boolean = claim.forall(_.isHeld)

  override def create(name: String, isDurable: Boolean): StateFileOutput = new StateFileOutput {
    assert(mayWrite, s"$name is written without a claim of $url")
    private val spooled = new SpooledObject
    override def stream: OutputStream = spooled
    override def commit(): Unit =
      try {
        claim.foreach(_.verifyNowAndThen())
        spooled.putTo(objects, s"$path/$name")
        lengthsOfFiles.put(name, spooled.length)
      } finally spooled.delete()
    override def cancel(): Unit = spooled.delete()
  }

  override def open(name: String): StateFileInput = new StateFileInput {
    override val length: Long = lengthOf(name)
    private val begin = math.max(0, if (length <= WholeBytes) 0 else length - TailBytes)
    private val end = if (length == 0) Array.emptyByteArray else read(begin, length - begin)
    override def readFully(position: Long, into: Array[Byte]): Unit = {
      val (bytes, from) =
        if (position >= begin) (end, math.min(position - begin, end.length).toInt)
        else (read(position, into.length), 0)
      val count = bytes.length - from
      if (count < into.length) throw new EOFException(s"it ends at byte ${position + count}")
      System.arraycopy(bytes, from, into, 0, into.length)
    }
    private def read(from: Long, count: Long): Array[Byte] =
      objects.get(s"$path/$name", from, Math.toIntExact(count))
        .getOrElse(throw StateDirectoryErrors.missing(url, name))
    override def close(): Unit = ()
  }

  private def lengthOf(name: String): Long =
    lengthsOfFiles.get(name).orElse(objects.list(path, name).get(name))
      .getOrElse(throw StateDirectoryErrors.missing(url, name))

  override def list(): Seq[String] = {
    val writer = claim.filter(_.isHeld)
    val listed = objects.list(path)
    // Verify after the listing: a run that takes over claims the directory before writing files.
    writer.foreach(_.verify())
    isListedByWriter = writer.isDefined
    lengthsOfFiles --= lengthsOfFiles.keys.filterNot(listed.contains)
    lengthsOfFiles ++= listed
    listed.keys.toSeq
  }

  override def lengths(names: Seq[String]): Map[String, Long] = {
    val unknown = names.filterNot(lengthsOfFiles.contains).toSet
    if (unknown.nonEmpty) {
      lengthsOfFiles ++= objects.list(path).filter { case (name, _) => unknown(name) }
    }
    names.flatMap(name => lengthsOfFiles.get(name).map(name -> _)).toMap
  }

  override def delete(names: Seq[String]): Unit = if (names.nonEmpty) {
    assert(mayWrite, s"files are deleted without a claim of $url")
    objects.delete(names.map(name => s"$path/$name"))
    lengthsOfFiles --= names
  }

  override def sweepOrphans(): Unit = objects.sweep()
}

private object GatewayStateDirectory {
  private val WholeBytes = 1L << 20
  private val TailBytes = 64L << 10
}
