package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicReference

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, MapView, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount

/**
 * Closes states in mapped files while threads use them, at a moment that a seed tells. A read of
 * memory that is not mapped ends the process.
 *
 * Arguments: a local directory, a seed, the number of states.
 */
object ClosingStress {
  def main(arguments: Array[String]): Unit = {
    val random = new Random(arguments(1).toLong)
    for (round <- 0 until arguments(2).toInt) {
      new StressedState(arguments(0), random.nextLong(), isViewed = round % 2 == 1).run()
    }
    println("every state was closed")
  }
}

/** @param isViewed whether views are open when the state is closed: it stays mapped until they go */
private final class StressedState(directory: String, seed: Long, isViewed: Boolean) {
  import ScriptedRows._

  private val Keys = 3000

  private val account = new MemoryAccount(Long.MaxValue, "a state under stress")
  private val memory = ScriptedMemory.in(directory, account)
  private val map =
    new CopyOnWritePagedMap(memory, shape(withPrefix = true).prefixOf(), RowChecksums.Off)
  private val versions = new VersionedState(map, memory, 2, StateId.Empty)
  private val failures = new ConcurrentLinkedQueue[Throwable]
  private val walked = new AtomicReference[MapView]
  @volatile private var isClosing = false
  @volatile private var isOver = false

  def run(): Unit = {
    write(new Random(seed), Keys * 4)
    val readers = Seq[Random => Unit](find, scan, prefetch)
    val viewers = if (isViewed) Seq[Random => Unit](list, walk) else Nil
    val users = Seq[Random => Unit](write(_, 40)) ++ readers ++ viewers
    map.readTimes(timeOf("key"), KeyFields, ValueFields)
    val old = map.oldRecords(Keys, KeyFields)
    val threads = users.zipWithIndex.map { case (use, number) =>
      new Thread(() => repeat(use, new Random(seed + number)), s"user $number")
    }
    threads.foreach(_.start())
    closeAtRandom(new Random(seed))
    threads.foreach(_.join())
    failures.asScala.foreach(throw _)
    Option(walked.get).foreach(_.release())
    assert(memory.mappedBytes == 0, s"${memory.mappedBytes} bytes stay mapped")
    assert(isRefused(map.get(key(1), ValueFields)), "a state that is closed was read")
    assert(isRefused(map.contains(key(Keys))), "a prefetch outlived its state")
    assert(isRefused(old.next((_, _) => ())), "old records of a state that is closed were read")
  }

  private def closeAtRandom(random: Random): Unit = {
    for (_ <- 0 until random.nextInt(8)) {
      Thread.sleep(0, random.nextInt(900000))
      Option(walked.get).foreach(_.release())
    }
    isClosing = true
    map.synchronized {
      if (!isViewed) map.prefetch(Array(KeyIndex.hashOf(key(Keys))), 1): Unit
      account.close()
      map.close()
    }
    Thread.sleep(3)
    isOver = true
  }

  private def repeat(use: Random => Unit, random: Random): Unit =
    try while (!isOver) use(random)
    catch {
      case _: CowStateException if isClosing =>
      case e: Throwable => failures.add(e)
    }

  private def isRefused(read: => Any): Boolean =
    try { read; false }
    catch { case _: CowStateException => true }

  private def write(random: Random, count: Int): Unit = {
    // The provider begins nothing on a state that it has closed.
    val undo = map.synchronized {
      if (memory.isClosed) throw CowStateException.ofUnloaded(account.owner)
      versions.begin(versions.head)
    }
    for (_ <- 0 until count) {
      val number = random.nextInt(Keys).toLong
      if (random.nextInt(4) == 0) map.remove(key(number), undo)
      else map.put(key(number), value(s"${4 + random.nextInt(60)}:${random.nextInt(9)}"), undo)
    }
    evict(map, timeOf("key"), random.nextInt(Keys), 7, undo): Unit
    map.compact(random.nextInt(1 << 20))
    if (random.nextBoolean()) versions.commit(StateId(versions.head.version + 1, "1"))
    else versions.abort()
  }

  private def find(random: Random): Unit = {
    val held = versions.held
    val state = held(random.nextInt(held.size))
    for (_ <- 0 until 20)
      whileHeld(versions.get(state, randomKey(random), ValueFields)).foreach(show)
    show(map.get(randomKey(random), ValueFields))
    map.contains(randomKey(random)): Unit
  }

  private def scan(random: Random): Unit =
    map.prefixScan(prefix(random.nextInt(13)), KeyFields, ValueFields).foreach(row => show(row._2))

  private def prefetch(random: Random): Unit = {
    val hashes = Array.fill(64)(KeyIndex.hashOf(randomKey(random)))
    map.prefetch(hashes, hashes.length): Unit
  }

  private def list(random: Random): Unit = {
    whileHeld(versions.entries(versions.head, KeyFields, ValueFields)).foreach {
      case (rows, release) =>
        try rows.take(random.nextInt(Keys)).foreach(row => show(row._2))
        finally release()
    }
  }

  /** Another thread may release the view meanwhile. */
  private def walk(random: Random): Unit = {
    val view = map.openView()
    walked.set(view)
    val row = new UnsafeRow(ValueFields)
    try {
      view.foreach { entry =>
        row.pointTo(entry.base, entry.keyOffset + entry.keyLength, entry.valueLength)
        show(row)
      }
    } catch { case _: CowStateException => }
    finally view.release()
  }

  /** None if a writer has gone on, so that the version is not held any more. */
  private def whileHeld[T](read: => T): Option[T] =
    try Option(read)
    catch { case e: CowStateException if e.getMessage.contains("not held any more") => None }

  private def show(value: UnsafeRow): Unit =
    assert(!showValue(value).startsWith("damaged"), "a value is damaged")

  private def randomKey(random: Random): UnsafeRow = key(random.nextInt(Keys))
}
