package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, CowStateMemoryLimitException, StateId
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.KeptRowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, UndoLog, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount

/**
 * The versions of a state, which do what the lines of a script say, each with one line of result.
 * Once a write exceeds the limit, the other writes of its batch are left out and `finish` aborts.
 */
final class VersionsScript(
    withPrefix: Boolean, versionsToRetain: Int, limitBytes: Long, localDirectory: String) {
  import ScriptedRows._

  private val rowShape = shape(withPrefix)
  // The limit is of the executor's total, to which other accounts of this JVM add.
  private val limit =
    if (limitBytes == 0) Long.MaxValue else MemoryAccount.executorBytes + limitBytes
  private val account = new MemoryAccount(limit, "the versions of a script")
  private val memory = ScriptedMemory.in(localDirectory, account)
  private val map = new CopyOnWritePagedMap(
    memory, rowShape.prefixOf().map(failing), new KeptRowChecksums("the versions of a script", 1))
  private val versions = new VersionedState(map, memory, versionsToRetain, StateId.Empty)
  private val opened = mutable.Map.empty[String, (Iterator[(UnsafeRow, UnsafeRow)], () => Unit)]
  private var undo: UndoLog = _
  private var isFull = false
  private var failingNumber = -1L

  private def failing(prefixOf: UnsafeRow => UnsafeRow): UnsafeRow => UnsafeRow = key => {
    if (key == ScriptedRows.key(failingNumber)) throw new IllegalStateException("as asked for")
    prefixOf(key)
  }

  /** The results of the lines. The map and its account are checked after each. */
  def run(script: String): String = try {
    script.linesIterator.map { line =>
      val result = try step(line.split(' ').toList)
      catch {
        case e @ (_: CowStateException | _: IllegalStateException) => s"error ${e.getMessage}"
      }
      map.checkInvariants()
      ScriptedMemory.check(
        memory, HeldBytes.ofVersions(versions, opened.values.map(o => HeldBytes.viewOf(o._2))),
        line)
      s"$result;${map.size}"
    }.mkString("\n")
  } finally {
    account.close()
    map.close()
  }

  private def step(words: List[String]): String = words match {
    case "interrupted" :: words =>
      Thread.currentThread.interrupt()
      try step(words)
      finally assert(Thread.interrupted(), "nobody is told of the interrupt any more")
    case List("compact") =>
      map.compact(Long.MaxValue)
      ""
    case List("begin", base) =>
      isFull = false
      unlessFull { undo = versions.begin(state(base)) }
    case List("put", number, text) => unlessFull(map.put(key(number.toLong), value(text), undo))
    case List("puts", numbers, text) => unlessFull {
        numbers.split(',').foreach(number => map.put(key(number.toLong), value(text), undo))
      }
    case List("prefetch", numbers) =>
      val hashes = numbers.split(',').map(number => KeyIndex.hashOf(key(number.toLong)))
      versions.prefetch(hashes, hashes.length, null)
      ""
    case List("remove", number) => unlessFull(map.remove(key(number.toLong), undo))
    case List("evict", part, upTo) =>
      unlessFull(evict(map, timeOf(part), upTo.toLong, 1, undo))
    case List("commit", made) =>
      versions.commit(state(made))
      ""
    case List("abort") =>
      versions.abort()
      ""
    case List("fail", number) =>
      failingNumber = number.toLong
      ""
    case List("finish", unique) =>
      if (isFull) versions.abort()
      else versions.commit(StateId(versions.head.version + 1, unique))
      if (isFull) "aborted" else "committed"
    case _ => read(words)
  }

  private def read(words: List[String]): String = words match {
    case List("held") => versions.held.map(s => s"${s.version}/${s.unique}").mkString(" ")
    case List("get", number) => showValue(map.get(key(number.toLong), ValueFields))
    case List("get", at, number) =>
      showValue(versions.get(state(at), key(number.toLong), ValueFields))
    case List("scan", number) =>
      show(map.prefixScan(prefix(number.toLong), KeyFields, ValueFields).iterator)
    case List("scan", at, number) =>
      show(versions.prefixScan(state(at), prefix(number.toLong), rowShape).iterator)
    case List("entries", at) =>
      val (rows, release) = versions.entries(state(at), KeyFields, ValueFields)
      try show(rows)
      finally release()
    case List("open", name, at) =>
      opened(name) = versions.entries(state(at), KeyFields, ValueFields)
      ""
    case List("view", name) =>
      val view = map.openView()
      opened(name) = (view.rows(KeyFields, ValueFields), () => view.release())
      ""
    case List("old", name, part, upTo) =>
      map.readTimes(timeOf(part), KeyFields, ValueFields)
      val view = map.openOldRows(upTo.toLong)
      opened(name) = (view.rows(KeyFields, ValueFields), () => view.release())
      ""
    case List("close", name) =>
      val (rows, release) = opened.remove(name).get
      try show(rows)
      finally release()
    case List("bytes") => account.bytes.toString
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def unlessFull(write: => Any): String =
    if (isFull) "left out"
    else try {
      write
      ""
    } catch {
      case _: CowStateMemoryLimitException =>
        isFull = true
        "full"
    }

  private def state(text: String): StateId = text.split('/') match {
    case Array("head") => versions.head
    case parts => StateId(parts(0).toLong, parts(1))
  }
}
