package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.{ByteArrayOutputStream, IOException, OutputStream}
import java.nio.ByteBuffer
import java.nio.file.{Files, Path}

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateDiskException

/**
 * An object that waits until it is put in the object store. A small object is kept in memory, an
 * object of more than `MemoryBytes` in a file of the executor's local directory. The whole object
 * stays until `delete`, so a put can be repeated.
 */
private[cowstate] final class SpooledObject extends OutputStream {
  import SpooledObject._

  private val memory = new Bytes
  private var file: Option[(Path, OutputStream)] = None
  private var written = 0L

  def length: Long = written

  override def write(byte: Int): Unit = write(Array(byte.toByte), 0, 1)

  override def write(bytes: Array[Byte], from: Int, count: Int): Unit = {
    if (file.isEmpty && written + count > MemoryBytes) moveToFile()
    file match {
      case Some((path, stream)) => onDisk(path)(stream.write(bytes, from, count))
      case None => memory.write(bytes, from, count)
    }
    written += count
  }

  private def moveToFile(): Unit = {
    val path = newFile()
    onDisk(path) {
      val stream = Files.newOutputStream(path)
      file = Some((path, stream))
      memory.writeTo(stream)
      memory.reset()
    }
  }

  def putTo(objects: GatewayObjects, name: String): Unit = file match {
    case Some((path, stream)) =>
      onDisk(path)(stream.close())
      objects.put(name, path)
    case None => objects.put(name, memory.buffer)
  }

  def delete(): Unit = {
    memory.reset()
    file.foreach { case (path, stream) =>
      stream.close()
      Files.deleteIfExists(path)
    }
  }
}

private object SpooledObject {
  /** Limit for an object in memory; small, because all stores of an executor may commit at once. */
  private val MemoryBytes = 4L << 20

  /**
   * Create a file on the disks that Spark uses for shuffles. Spark deletes remaining files when it
   * ends.
   */
  private def newFile(): Path = Option(SparkEnv.get) match {
    case Some(env) => env.blockManager.diskBlockManager.createTempLocalBlock()._2.toPath
    case None => Files.createTempFile("cowstate-", ".spool")
  }

  private def onDisk(path: Path)(write: => Unit): Unit =
    try write
    catch {
      case e: IOException => throw CowStateDiskException.ofSpool(path.getParent.toString, e)
    }

  private final class Bytes extends ByteArrayOutputStream {
    def buffer: ByteBuffer = ByteBuffer.wrap(buf, 0, count)
  }
}
