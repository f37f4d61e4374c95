package org.apache.spark.sql.execution.streaming.state.cowstate.benchmarks

import java.io.{ByteArrayOutputStream, FileOutputStream}
import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path, Paths, StandardCopyOption}

import scala.util.Random

import com.sun.management.ThreadMXBean
import com.github.luben.zstd.Zstd
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  ArrowRowsReader, ArrowRowsWriter, StateFileInput, StateFileMetadata
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{HeapMemory, MemoryAccount}
import org.apache.spark.unsafe.Platform

/**
 * Times the steps that a row of an aggregation goes through in the map and its changelog, one after
 * the other over the same keys, and prints nanoseconds and allocated bytes of a row: `<step> <ns>
 * <bytes>`, for each round.
 */
object MapSteps {
  private val Words = 3
  private val Group = 64

  def main(args: Array[String]): Unit = {
    val (keys, updates, rounds) = (args(0).toInt, args(1).toInt, args(2).toInt)
    val steps = new MapSteps(keys, updates, Paths.get(args(3)))
    for (_ <- 1 to rounds) steps.run()
    System.out.flush()
    // Keeps the compiler from dropping what is only read.
    Runtime.getRuntime.halt(if (steps.sum == Long.MinValue) 1 else 0)
  }
}

private final class MapSteps(keys: Int, updates: Int, directory: Path) {
  import MapSteps._

  private val rows = new Rows(Words)
  private val account = new MemoryAccount(Long.MaxValue, "steps")
  private val memory = new HeapMemory(account)
  private val map = new CopyOnWritePagedMap(memory, None)
  private val versions = new VersionedState(map, memory, 2, StateId.Empty)
  private val chance = new Random(1)
  // As many bytes as the map's table and records have.
  private val lines = new Array[Long](keys * 12)
  private val allRows = new Array[Byte](updates * (16 + rows.valueBytes))
  private val compressed = new Array[Byte](Zstd.compressBound(allRows.length).toInt)
  private val threads = ManagementFactory.getThreadMXBean.asInstanceOf[ThreadMXBean]
  private var batch = 0L
  var sum = 0L

  fill()

  private def fill(): Unit = {
    val undo = versions.begin(versions.head)
    for (key <- 0 until keys) {
      rows.set(key, 0)
      map.put(rows.key, rows.value, undo)
    }
    commit()
  }

  private def commit(): Unit = versions.commit(StateId(versions.head.version + 1, "0"))

  def run(): Unit = {
    batch += 1
    val drawn = Array.fill(updates)(chance.nextInt(keys)).distinct
    timed("rows", drawn)(key => rows.set(key, batch))
    timed("hash", drawn) { key => rows.set(key, batch); sum += KeyIndex.hashOf(rows.key) }
    timed("line", drawn) { key => rows.set(key, batch); sum += lines(key * 12) }
    copyRows(drawn)
    timed("contains", drawn) { key =>
      rows.set(key, batch)
      if (map.contains(rows.key)) sum += 1
    }
    timedInGroups("prefetched", drawn) { key =>
      rows.set(key, batch)
      if (map.contains(rows.key)) sum += 1
    }
    timed("absent", drawn) { key =>
      rows.set(key + keys, batch)
      if (map.contains(rows.key)) sum += 1
    }
    var undo = versions.begin(versions.head)
    timed("get", drawn) { key => rows.set(key, batch); read(map.get(rows.key, Words)) }
    timedInGroups("get, prefetched", drawn) { key =>
      rows.set(key, batch)
      read(map.get(rows.key, Words))
    }
    timed("put", drawn) { key => rows.set(key, batch); map.put(rows.key, rows.value, undo) }
    timed("put again", drawn) { key => rows.set(key, batch); map.put(rows.key, rows.value, undo) }
    commit()
    undo = versions.begin(versions.head)
    timed("put alone", drawn) { key =>
      rows.set(key, batch + 1)
      map.put(rows.key, rows.value, undo)
    }
    commit()
    writeChanges(drawn)
  }

  private def read(value: UnsafeRow): Unit = sum += value.getLong(0)

  private def writeChanges(drawn: Array[Int]): Unit = {
    val stream = new ByteArrayOutputStream(1 << 24)
    val format = StateFileMetadata.Format -> StateFileMetadata.FormatVersion
    val writer = new ArrowRowsWriter(() => stream, Seq(format))
    timed("changelog", drawn) { key => rows.set(key, batch); writer.put(rows.key, rows.value) }
    once("compress", drawn.length)(writer.finish())
    val hidden = directory.resolve(s".$batch.arrow")
    val file = once("create", drawn.length)(new FileOutputStream(hidden.toFile))
    once("write", drawn.length)(stream.writeTo(file))
    once("sync", drawn.length)(file.getFD.sync())
    file.close()
    once("name", drawn.length) {
      Files.move(hidden, directory.resolve(s"$batch.arrow"), StandardCopyOption.ATOMIC_MOVE)
    }
    val bytes = stream.toByteArray
    once("read back", drawn.length)(readRows(new InputOf(bytes)))
  }

  private def readRows(file: StateFileInput): Unit = {
    val (key, value) = (new UnsafeRow(1), new UnsafeRow(Words))
    val reader = new ArrowRowsReader(file, "a changelog", "a store")
    reader.groupsFrom(0).flatMap(reader.batches(_)).foreach { batch =>
      var row = 0
      while (row < batch.rows) {
        batch.pointToKey(row, key)
        batch.pointToValue(row, value)
        sum += key.getLong(0) + value.getLong(0)
        row += 1
      }
    }
  }

  /** The least that any place for rows costs: they are copied one behind the other. */
  private def copyRows(drawn: Array[Int]): Unit = {
    var end = 0
    timed("copy", drawn) { key =>
      rows.set(key, batch)
      end = append(rows.value, append(rows.key, end))
    }
    once("zstd", drawn.length) {
      Zstd.compressByteArray(compressed, 0, compressed.length, allRows, 0, end, 1)
    }
  }

  private def append(row: UnsafeRow, at: Int): Int = {
    Platform.copyMemory(
      row.getBaseObject, row.getBaseOffset, allRows, Platform.BYTE_ARRAY_OFFSET + at,
      row.getSizeInBytes)
    at + row.getSizeInBytes
  }

  private def timed(step: String, drawn: Array[Int])(f: Int => Unit): Unit =
    once(step, drawn.length)(forEach(drawn)(f))

  /** Array's own would make an object of each key. */
  private def forEach(drawn: Array[Int])(f: Int => Unit): Unit = {
    var place = 0
    while (place < drawn.length) {
      f(drawn(place))
      place += 1
    }
  }

  /** As `timed`, with a prefetch for each group of keys. */
  private def timedInGroups(step: String, drawn: Array[Int])(f: Int => Unit): Unit = {
    val hashes = new Array[Int](Group)
    val groups = drawn.grouped(Group).toArray
    once(step, drawn.length)(groups.foreach { keys =>
      var place = 0
      while (place < keys.length) {
        rows.set(keys(place), batch)
        hashes(place) = KeyIndex.hashOf(rows.key)
        place += 1
      }
      map.prefetch(hashes, keys.length)
      forEach(keys)(f)
    })
  }

  private def once[T](step: String, count: Int)(f: => T): T = {
    val thread = Thread.currentThread.getId
    val (allocated, began) = (threads.getThreadAllocatedBytes(thread), System.nanoTime)
    val result = f
    val nanoseconds = (System.nanoTime - began).toDouble / count
    val bytes = (threads.getThreadAllocatedBytes(thread) - allocated).toDouble / count
    println(s"${step.replace(' ', '_')} $nanoseconds $bytes")
    result
  }
}

private final class InputOf(bytes: Array[Byte]) extends StateFileInput {
  override def length: Long = bytes.length
  override def readFully(position: Long, into: Array[Byte]): Unit =
    System.arraycopy(bytes, position.toInt, into, 0, into.length)
  override def close(): Unit = ()
}
