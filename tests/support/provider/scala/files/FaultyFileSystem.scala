package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{EOFException, IOException, OutputStream}
import java.net.URI
import java.util.concurrent.atomic.AtomicInteger

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, FSInputStream, Path}
import org.apache.hadoop.fs.{RawLocalFileSystem, StreamCapabilities, Syncable}
import org.apache.hadoop.util.Progressable

/**
 * Local files below `faulty:/`, of which reads fail or take long as a test says. Its streams count
 * how often they are synced, and may be such as cannot be.
 */
final class FaultyFileSystem extends RawLocalFileSystem {
  import FaultyFileSystem._

  override def getScheme: String = Scheme
  override def getUri: URI = URI.create(s"$Scheme:///")

  override def open(path: Path, bufferBytes: Int): FSDataInputStream = {
    opened.incrementAndGet()
    new FSDataInputStream(new FaultyInput(path.getName, super.open(path, bufferBytes)))
  }

  override def create(
      path: Path,
      overwrite: Boolean,
      bufferBytes: Int,
      replication: Short,
      blockBytes: Long,
      progress: Progressable): FSDataOutputStream = {
    val made = super.create(path, overwrite, bufferBytes, replication, blockBytes, progress)
    new FSDataOutputStream(new FaultyOutput(made), null)
  }

  override def exists(path: Path): Boolean = {
    if (path == watched) existsCalls.incrementAndGet()
    super.exists(path)
  }
}

object FaultyFileSystem {
  private val Scheme = "faulty"
  @volatile var failing: Map[String, String] = Map.empty
  @volatile var slowMs: Map[String, Long] = Map.empty
  @volatile var watched: Path = _
  val opened = new AtomicInteger
  val closed = new AtomicInteger
  val existsCalls = new AtomicInteger
  @volatile var canSync = true
  val synced = new AtomicInteger

  def conf: Configuration = {
    val made = new Configuration
    made.setClassLoader(getClass.getClassLoader)
    made.set(s"fs.$Scheme.impl", classOf[FaultyFileSystem].getName)
    made.setBoolean(s"fs.$Scheme.impl.disable.cache", true)
    made
  }

  private def at[T](faults: Map[String, T], name: String): Option[T] =
    faults.collectFirst { case (part, fault) if name.contains(part) => fault }

  private final class FaultyOutput(out: FSDataOutputStream)
    extends OutputStream with Syncable with StreamCapabilities {
    override def write(byte: Int): Unit = out.write(byte)
    override def write(bytes: Array[Byte], from: Int, count: Int): Unit =
      out.write(bytes, from, count)
    override def flush(): Unit = out.flush()
    override def close(): Unit = out.close()
    override def hasCapability(capability: String): Boolean = canSync
    override def hflush(): Unit = hsync()
    override def hsync(): Unit = {
      if (!canSync) throw new UnsupportedOperationException("hsync")
      synced.incrementAndGet()
      out.hsync()
    }
  }

  private final class FaultyInput(name: String, in: FSDataInputStream) extends FSInputStream {
    private def fault(): Unit = {
      at(slowMs, name).foreach(Thread.sleep)
      at(failing, name).foreach {
        case "eof" => throw new EOFException("it ends")
        case text => throw new IOException(text)
      }
    }
    override def seek(position: Long): Unit = in.seek(position)
    override def getPos: Long = in.getPos
    override def seekToNewSource(position: Long): Boolean = false
    override def read(): Int = { fault(); in.read() }
    override def read(into: Array[Byte], from: Int, count: Int): Int = {
      fault()
      in.read(into, from, count)
    }
    override def close(): Unit = {
      closed.incrementAndGet()
      in.close()
    }
  }
}
