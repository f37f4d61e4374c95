package org.apache.spark.sql.execution.streaming.state.cowstate.memory

import java.io.{IOException, RandomAccessFile}
import java.nio.MappedByteBuffer
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.file.{DirectoryIteratorException, Files, Path}
import java.nio.file.StandardOpenOption.{READ, WRITE}
import java.util
import java.util.UUID

import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateDiskException, CowStateException
}
import org.apache.spark.storage.StorageUtils
import org.apache.spark.unsafe.Platform
import sun.nio.ch.DirectBuffer

/**
 * Memory in files of a local directory, mapped into the process. The operating system keeps the
 * used parts in its cache and writes the other parts to the disk. The files are working memory,
 * never the truth. An open file loses its name at once, so the file ends with the process, however
 * the process ends. If the process is killed before the file loses its name, an empty file stays,
 * and a later process deletes the file.
 *
 *     segment   a file of 1 MiB, the next of 2 MiB, and so on up to 64 MiB; blocks are cut from the
 *               file in order. A larger block has a file of its own
 *     block     4 KiB, 8 KiB, and so on: the smallest size that is large enough. A block that is
 *               given back is given out again for the same size
 *
 * A write to a mapped page ends the process if the disk has no room for the page. So the file is
 * written with zeros before its bytes are given out: a full disk then shows up as an exception.
 *
 * Spark interrupts the thread of a task that it kills. The thread then undoes the changes of the
 * task, and may need more memory to do so. So an interrupt must neither stop nor close the writer
 * that makes the files grow. An interrupt closes a channel of Java; a RandomAccessFile stays open.
 *
 * A small change at a random place of a large file makes the system write a whole block of the
 * disk. So records are changed in place only in the newest pages, which the system has to write
 * anyway.
 *
 * @param directory place of the files
 * @param owner     name of the store, for errors
 */
private[cowstate] final class MappedMemory(
    val account: MemoryAccount, directory: Path, owner: String) extends StateMemory {
  import MappedMemory._

  override val pagesChangedInPlace: Int = 256
  override val largestBlock: Long = 1L << 30

  private val returned = mutable.LongMap.empty[util.ArrayDeque[Block]]
  private val segments = mutable.ArrayBuffer.empty[MappedSegment]
  private val ofOneBlock = new util.IdentityHashMap[Block, MappedSegment]
  private var nextSegmentBytes = MinSegmentBytes
  private var closed = false
  sweep(directory)

  override def mappedBytes: Long = all.map(_.filledBytes).sum

  private def all: Iterator[MappedSegment] =
    segments.iterator ++ ofOneBlock.values.asScala

  override def allocate(bytes: Long): Block = {
    val size = sizeFor(bytes)
    givenAgain(size).getOrElse(cut(size))
  }

  override def allocateZeros(bytes: Long): Block = {
    val size = sizeFor(bytes)
    val again = givenAgain(size)
    again.foreach(block => Platform.setMemory(block.base, block.start, block.bytes, 0))
    again.getOrElse(cut(size))
  }

  private def givenAgain(size: Long): Option[Block] = {
    if (closed) throw CowStateException.ofUnloaded(owner)
    returned.get(size).flatMap(blocks => Option(blocks.poll()))
  }

  /** Return a new block, filled with zeros. */
  private def cut(size: Long): Block =
    try if (size > MaxSegmentBytes) newFileOf(size) else tail(size).cut(size)
    catch {
      case e: IOException => throw CowStateDiskException.ofState(owner, directory.toString, e)
    }

  private def tail(size: Long): MappedSegment = {
    if (!segments.lastOption.exists(_.hasRoom(size))) {
      segments += new MappedSegment(directory, owner, math.max(nextSegmentBytes, size))
      nextSegmentBytes = math.min(nextSegmentBytes * 2, MaxSegmentBytes)
    }
    segments.last
  }

  private def newFileOf(size: Long): Block = {
    if (size > largestBlock) throw CowStateException.ofLongRow(owner, largestBlock)
    val segment = new MappedSegment(directory, owner, size)
    try {
      val block = segment.cut(size)
      ofOneBlock.put(block, segment)
      block
    } catch {
      case e: IOException =>
        segment.unmap()
        throw e
    }
  }

  override def free(block: Block): Unit = if (!closed) {
    val segment = ofOneBlock.remove(block)
    if (segment != null) segment.unmap()
    else returned.getOrElseUpdate(block.bytes, new util.ArrayDeque[Block]).add(block)
  }

  override def permits(bytes: Long): Boolean = true

  override def isClosed: Boolean = closed

  override def close(isRead: Boolean): Unit = {
    closed = true
    returned.clear()
    if (!isRead) {
      val unmapped = all.toSeq
      segments.clear()
      ofOneBlock.clear()
      unmapAll(unmapped)
    }
  }
}

private object MappedMemory {
  /** Give all segments back, even if some fail. Throws the first failure. */
  private def unmapAll(segments: Seq[MappedSegment]): Unit = {
    val failures = segments.flatMap(segment => Try(segment.unmap()).failed.toOption)
    failures.headOption.foreach { first =>
      failures.tail.foreach(first.addSuppressed)
      throw first
    }
  }

  private val MinBlockBytes = 4L << 10
  private val MinSegmentBytes = 1L << 20
  private val MaxSegmentBytes = 64L << 20
  /**
   * A file normally loses its name at once. A file that still has a name after an hour was left by
   * a killed process.
   */
  private val SweepAgeMs = 3600L * 1000

  /**
   * Delete the files of killed processes. Ignores an unreadable directory: the first file created
   * there fails with an error that names the directory.
   */
  private def sweep(directory: Path): Unit =
    try Using.resource(Files.newDirectoryStream(directory, MappedSegment.Names)) { files =>
        files.asScala.filter(isOld).foreach(Files.deleteIfExists)
      }
    catch { case _: IOException | _: DirectoryIteratorException => }

  private def isOld(file: Path): Boolean =
    System.currentTimeMillis - Files.getLastModifiedTime(file).toMillis > SweepAgeMs

  private def sizeFor(bytes: Long): Long = {
    var size = MinBlockBytes
    while (size < bytes) size *= 2
    size
  }
}

/**
 * A file without a name. All `bytes` bytes are mapped at once, but take room on the disk only as
 * blocks are cut: a block's part of the file is then filled with zeros.
 */
private final class MappedSegment(directory: Path, owner: String, bytes: Long) {
  import MappedSegment._

  private val name = Files.createFile(directory.resolve(s"cowstate-${UUID.randomUUID()}.state"))
  private val file = new RandomAccessFile(name.toFile, "rw")
  private val buffer: MappedByteBuffer =
    try mapped()
    catch {
      case e: IOException =>
        file.close()
        throw e
    } finally Files.deleteIfExists(name): Unit
  private val address = buffer.asInstanceOf[DirectBuffer].address
  private val blocks = mutable.ArrayBuffer.empty[Block]
  private var cutBytes = 0L
  private var filled = 0L

  /** Number of bytes for which the disk has given room: the bytes that were filled with zeros. */
  def filledBytes: Long = filled

  def hasRoom(size: Long): Boolean = cutBytes + size <= bytes

  /**
   * Return the next block, filled with zeros. On failure, throws IOException and changes nothing.
   */
  def cut(size: Long): Block = {
    fill(cutBytes + size)
    val block = new Block(null, address + cutBytes, size, buffer)
    blocks += block
    cutBytes += size
    block
  }

  /**
   * Map the whole file. An interrupt closes the channel; then the mapping is tried again. A mapped
   * file does not need the channel.
   */
  @tailrec
  private def mapped(): MappedByteBuffer = {
    val wasInterrupted = Thread.interrupted()
    val tried =
      try Some(Using.resource(FileChannel.open(name, READ, WRITE))(
            _.map(FileChannel.MapMode.READ_WRITE, 0, bytes)))
      catch { case _: ClosedByInterruptException => None }
      finally if (wasInterrupted) Thread.currentThread.interrupt()
    tried match {
      case Some(made) => made
      case None => mapped()
    }
  }

  private def fill(end: Long): Unit = {
    while (filled < end) {
      val count = math.min(Zeros.length, bytes - filled).toInt
      file.seek(filled)
      file.write(Zeros, 0, count)
      filled += count
    }
    if (filled == bytes) file.close()
  }

  /** Revoke all blocks, and give back the memory and the file. */
  def unmap(): Unit = {
    blocks.foreach(_.revoke(owner))
    try file.close()
    finally StorageUtils.dispose(buffer)
  }
}

private object MappedSegment {
  /** Pattern of the file names, with a UUID inside. */
  val Names = s"cowstate-${Seq(8, 4, 4, 4, 12).map("?" * _).mkString("-")}.state"
  private val Zeros = new Array[Byte](64 << 10)
}
