package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.{FileNotFoundException, OutputStream}
import java.nio.ByteBuffer
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{Files, NoSuchFileException, Path => LocalPath, Paths}
import java.nio.file.{StandardCopyOption, StandardOpenOption}
import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path, StreamCapabilities}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateMissingException, WaysOut
}

/**
 * A file being written. The directory has no part of the file until `commit` puts the whole file
 * there.
 */
trait StateFileOutput {
  def stream: OutputStream
  def commit(): Unit
  def cancel(): Unit
}

/** Directory with the files of one store. No name is used twice, so no file is overwritten. */
trait StateDirectory {
  def url: String
  /**
   * True if the directory is in an object store. Maintenance then writes all snapshots, also the
   * snapshots that Spark forces, because a batch would wait too long for the upload.
   */
  def isInStore: Boolean = false
  /**
   * Prepare for writing, before the first bytes of the changelog of `version`. Returns true if an
   * earlier listing may be outdated: the caller then lists again. Throws if this run may not write
   * here.
   */
  def beginWriting(version: Long): Boolean = false
  /**
   * True if this run may write and delete files. If writing needs a claim, false before
   * `beginWriting`.
   */
  def mayWrite: Boolean = true
  /** Create a file to be written. A durable file survives a power failure once `commit` returns. */
  def create(name: String, isDurable: Boolean): StateFileOutput
  /** Open a file. Throws CowStateMissingException. */
  def open(name: String): StateFileInput
  /** Return the names in the directory; empty if the directory does not exist. */
  def list(): Seq[String]
  /** Return the lengths of the files; missing files are left out. */
  def lengths(names: Seq[String]): Map[String, Long]
  /** Delete files. Files that are already gone are no error. */
  def delete(names: Seq[String]): Unit
  /** Delete the unfinished files of killed writers once the files are a day old. */
  def sweepOrphans(): Unit
}

object StateDirectory {
  /**
   * Return the directory of a store. A `file:` path is accessed by Java's file API, all other paths
   * by Spark's checkpoint file manager. Spark's manager would start a process for each local file.
   * If the user has chosen a checkpoint file manager, this manager accesses `file:` paths, too.
   *
   * Java's file API: a file is written under a hidden name and then moved. A durable file is synced
   * after the move, and the directory after the file. Spark's manager: a durable file is synced if
   * the manager's stream supports a sync.
   */
  def of(path: Path, conf: Configuration): StateDirectory = {
    val qualified = path.getFileSystem(conf).makeQualified(path)
    val chosen = conf.get(ManagerClass) != null
    if (qualified.toUri.getScheme == "file" && !chosen) {
      new LocalStateDirectory(Paths.get(qualified.toUri.getPath), qualified.toString)
    } else {
      new ManagedStateDirectory(qualified, conf)
    }
  }

  private val ManagerClass = "spark.sql.streaming.checkpointFileManagerClass"
}

private final class LocalStateDirectory(directory: LocalPath, val url: String)
  extends StateDirectory {
  import LocalStateDirectory._

  private lazy val syncedAncestors: Unit =
    Iterator.iterate(directory.getParent)(_.getParent).take(Ancestors)
      .takeWhile(above => above != null && Files.isReadable(above)).foreach(sync)

  override def create(name: String, isDurable: Boolean): StateFileOutput = new StateFileOutput {
    private val hidden = directory.resolve(s".$name.tmp")
    Files.createDirectories(directory)
    private val channel = FileChannel.open(
      hidden, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
    override val stream: OutputStream = Channels.newOutputStream(channel)
    // In this order, a file system with a journal writes the journal once for the bytes and the
    // name.
    override def commit(): Unit = {
      Files.move(hidden, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE)
      if (isDurable) {
        channel.force(true)
        sync(directory)
        syncedAncestors
      }
      stream.close()
    }
    override def cancel(): Unit = {
      stream.close()
      Files.deleteIfExists(hidden)
    }
  }

  override def open(name: String): StateFileInput = new StateFileInput {
    private val channel =
      try FileChannel.open(directory.resolve(name), StandardOpenOption.READ)
      catch { case _: NoSuchFileException => throw StateDirectoryErrors.missing(url, name) }
    override val length: Long = channel.size
    override def readFully(position: Long, into: Array[Byte]): Unit = {
      val buffer = ByteBuffer.wrap(into)
      var at = position
      while (buffer.hasRemaining) {
        val count = channel.read(buffer, at)
        if (count < 0) throw new java.io.EOFException(s"it ends at byte $at")
        at += count
      }
    }
    override def close(): Unit = channel.close()
  }

  override def list(): Seq[String] =
    if (!Files.isDirectory(directory)) Nil
    else Using.resource(Files.list(directory)) { files =>
      files.iterator.asScala.map(_.getFileName.toString).toList
    }

  override def lengths(names: Seq[String]): Map[String, Long] =
    names.map(name => name -> directory.resolve(name).toFile).collect {
      case (name, file) if file.exists => name -> file.length
    }.toMap

  override def delete(names: Seq[String]): Unit =
    names.foreach(name => Files.deleteIfExists(directory.resolve(name)))

  override def sweepOrphans(): Unit = {
    val limit = System.currentTimeMillis - TimeUnit.DAYS.toMillis(1)
    list().filter(name => name.startsWith(".") && name.endsWith(".arrow.tmp")).foreach { name =>
      val file = directory.resolve(name)
      try if (Files.getLastModifiedTime(file).toMillis < limit) Files.deleteIfExists(file)
      catch { case _: NoSuchFileException => } // The writer has renamed the file since the listing.
    }
  }
}

private[cowstate] object LocalStateDirectory {
  /**
   * Number of directories above a store's directory, up to the checkpoint's: partition, operator,
   * state, checkpoint. A store without a name has one directory less: the fourth directory then
   * lies above the checkpoint, and may be unreadable.
   */
  private val Ancestors = 4

  /** Force the bytes of a file, or the names in a directory, to the disk. */
  def sync(path: LocalPath): Unit =
    Using.resource(FileChannel.open(path, StandardOpenOption.READ))(_.force(true))
}

private final class ManagedStateDirectory(directory: Path, conf: Configuration)
  extends StateDirectory {
  private val manager = CheckpointFileManager.create(directory, conf)
  private lazy val made: Unit = if (!manager.exists(directory)) manager.mkdirs(directory)

  override def url: String = directory.toString

  override def create(name: String, isDurable: Boolean): StateFileOutput = new StateFileOutput {
    made
    private val out = manager.createAtomic(new Path(directory, name), overwriteIfPossible = false)
    override def stream: OutputStream = out
    override def commit(): Unit = {
      if (isDurable && out.hasCapability(StreamCapabilities.HSYNC)) out.hsync()
      out.close()
    }
    override def cancel(): Unit = out.cancel()
  }

  override def open(name: String): StateFileInput = new StateFileInput {
    private val path = new Path(directory, name)
    private val (size: Long, in: FSDataInputStream) =
      try (sizeOf(path), manager.open(path))
      catch { case _: FileNotFoundException => throw StateDirectoryErrors.missing(url, name) }
    override def length: Long = size
    override def readFully(position: Long, into: Array[Byte]): Unit = in.readFully(position, into)
    override def close(): Unit = in.close()
  }

  private def sizeOf(path: Path): Long = path.getFileSystem(conf).getFileStatus(path).getLen

  override def list(): Seq[String] =
    try manager.list(directory).map(_.getPath.getName).toSeq
    catch { case _: FileNotFoundException => Nil }

  override def lengths(names: Seq[String]): Map[String, Long] = {
    val listed = manager.list(directory).map(file => file.getPath.getName -> file.getLen).toMap
    listed.filter { case (name, _) => names.contains(name) }
  }

  override def delete(names: Seq[String]): Unit =
    names.foreach(name => manager.delete(new Path(directory, name)))

  /** Do nothing: the manager cleans up its own temporary files. */
  override def sweepOrphans(): Unit = ()
}

private[cowstate] object StateDirectoryErrors {
  def missing(url: String, name: String): CowStateMissingException =
    new CowStateMissingException(
      s"$url/$name is missing: something other than cowstate deleted it. Restore it " +
        WaysOut.restoreOrRestartWithout(name), s"$url/$name")
}
