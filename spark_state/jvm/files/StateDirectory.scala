package org.apache.spark.sql.execution.streaming.state.cowstate

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

/** A file being written. It is in the directory after `commit`, whole, or never. */
trait StateFileOutput {
  def stream: OutputStream
  def commit(): Unit
  def cancel(): Unit
}

/** The files of one store. Names are never used twice, so nothing is overwritten. */
trait StateDirectory {
  def url: String
  /** Whether it is in an object store: no batch waits there for a snapshot. */
  def isInStore: Boolean = false
  /**
   * Before the first bytes of the changelog of `version`. Whether what was listed before may have
   * changed: the caller then lists again. Throws if this run may not write here.
   */
  def beginWriting(version: Long): Boolean = false
  /** Whether this run may write and delete files: not before it has begun, if it needs a claim. */
  def mayWrite: Boolean = true
  /** A file to be written. One that is durable outlives a power failure once `commit` returns. */
  def create(name: String, isDurable: Boolean): StateFileOutput
  /** Throws CowStateMissingException. */
  def open(name: String): StateFileInput
  /** The names in the directory; empty if there is none. */
  def list(): Seq[String]
  /** The lengths of these files, as far as they are there. */
  def lengths(names: Seq[String]): Map[String, Long]
  /** Delete files; they may be gone already. */
  def delete(names: Seq[String]): Unit
  /** Delete unfinished files of writers that were killed, a day later. */
  def sweepOrphans(): Unit
}

object StateDirectory {
  /**
   * The directory of a store: by the Java file API for a `file:` path whose checkpoint file manager
   * was not chosen by the user, and through that manager otherwise. The local one writes a hidden
   * file and moves it, without the processes that the manager forks for each file. A durable file is
   * synced before it is moved, and the directory afterwards; through the manager, a file is synced
   * if its stream can be.
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
    // A file system that has a journal writes it once for the bytes and the name, in this order.
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
      catch { case _: NoSuchFileException => } // Its writer has renamed it since the listing.
    }
  }
}

private object LocalStateDirectory {
  /**
   * From a store's directory up to the checkpoint's: a store's name, partition, operator, state. A
   * store without a name has one directory less, and what is above a checkpoint may be closed to us.
   */
  private val Ancestors = 4

  /** Force a file to the disk, or the names in a directory. */
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

  /** Nothing to do: the manager looks after its own temporary files. */
  override def sweepOrphans(): Unit = ()
}

private object StateDirectoryErrors {
  def missing(url: String, name: String): CowStateMissingException =
    new CowStateMissingException(
      s"$url/$name is missing: something other than cowstate deleted it. Restore it " +
        WaysOut.restoreOrRestartWithout(name), s"$url/$name")
}
