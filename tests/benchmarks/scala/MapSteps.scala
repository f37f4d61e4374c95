package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.{ByteArrayOutputStream, FileOutputStream}
import java.nio.file.{Path, Paths}

import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Times the steps that a row of an aggregation goes through in the map and its changelog, one after
 * the other over the same keys, and prints nanoseconds of a row: `<step> <ns>`, for each round.
 */
object MapSteps {
  private val Words = 3
  private val Group = 64

  def main(args: Array[String]): Unit = {
    val (keys, updates, rounds) = (args(0).toInt, args(1).toInt, args(2).toInt)
    val steps = new MapSteps(keys, updates, args(3), Paths.get(args(4)))
    for (_ <- 1 to rounds) steps.run()
    System.out.flush()
    // Keeps the compiler from dropping what is only read.
    Runtime.getRuntime.halt(if (steps.sum == Long.MinValue) 1 else 0)
  }
}

private final class MapSteps(keys: Int, updates: Int, codec: String, directory: Path) {
  import MapSteps._

  private val rows = new Rows(Words)
  private val account = new MemoryAccount(Long.MaxValue, "steps")
  private val memory = new HeapMemory(account)
  private val map = new CopyOnWritePagedMap(memory, None)
  private val versions = new VersionedState(map, memory, 2, StateId.Empty)
  private val chance = new Random(1)
  // As many bytes as the map's table and records have.
  private val lines = new Array[Long](keys * 12)
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
    timed("put", drawn) { key => rows.set(key, batch); map.put(rows.key, rows.value, undo) }
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
    val writer = new StateFileWriter(() => stream, codec, Nil)
    timed("changelog", drawn) { key => rows.set(key, batch); writer.put(rows.key, rows.value) }
    val ended = System.nanoTime
    writer.finish()
    print("compress", System.nanoTime - ended, drawn.length)
    val opened = System.nanoTime
    val file = new FileOutputStream(directory.resolve(s"$batch.arrow").toFile)
    file.write(stream.toByteArray)
    print("write", System.nanoTime - opened, drawn.length)
    val written = System.nanoTime
    file.getFD.sync()
    print("sync", System.nanoTime - written, drawn.length)
    file.close()
  }

  private def timed(step: String, drawn: Array[Int])(f: Int => Unit): Unit = {
    val began = System.nanoTime
    drawn.foreach(f)
    print(step, System.nanoTime - began, drawn.length)
  }

  /** As `timed`, with a prefetch for each group of keys. */
  private def timedInGroups(step: String, drawn: Array[Int])(f: Int => Unit): Unit = {
    val began = System.nanoTime
    drawn.grouped(Group).foreach { keys =>
      val hashes = keys.map { key => rows.set(key, batch); KeyIndex.hashOf(rows.key) }
      map.prefetch(hashes, hashes.length)
      keys.foreach(f)
    }
    print(step, System.nanoTime - began, drawn.length)
  }

  private def print(step: String, nanoseconds: Long, count: Int): Unit =
    println(s"${step.replace(' ', '_')} ${nanoseconds.toDouble / count}")
}
