package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.KeptRowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, MapView
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount

/** A map that does what the lines of a script say, each with one line of result. */
final class MapScript(withPrefix: Boolean, localDirectory: String) {
  import ScriptedRows._

  private val account = new MemoryAccount(Long.MaxValue, "the map of a script")
  private val memory = ScriptedMemory.in(localDirectory, account)
  private val map = new CopyOnWritePagedMap(
    memory, shape(withPrefix).prefixOf(), new KeptRowChecksums("the map of a script", 1))
  private val views = mutable.Map.empty[String, OpenView]

  /** The results of the lines. The map and its account are checked after each. */
  def run(script: String): String = try {
    script.linesIterator.map { line =>
      val result = step(line.split(' ').toList)
      map.checkInvariants()
      ScriptedMemory.check(memory, HeldBytes.ofMap(map, views.values.map(_.view)), line)
      s"$result;${map.size}"
    }.mkString("\n")
  } finally {
    account.close()
    map.close()
  }

  private def step(words: List[String]): String = words match {
    case List("put", number, text) =>
      map.put(key(number.toLong), value(text), null)
      ""
    case List("puts", numbers, text) =>
      numbers.split(',').foreach(number => map.put(key(number.toLong), value(text), null))
      ""
    case List("prefetch", numbers) =>
      val hashes = numbers.split(',').map(number => KeyIndex.hashOf(key(number.toLong)))
      map.prefetch(hashes, hashes.length)
      ""
    case List("reserve", count) =>
      map.reserve(count.toLong)
      ""
    case List("trim") =>
      map.trim()
      ""
    case List("add", number, text) =>
      val (absent, row) = (key(number.toLong), value(text))
      map.prefetch(Array(KeyIndex.hashOf(absent)), 1)
      map.add(absent, KeyIndex.hashOf(absent), row, map.checksums.of(absent, row))
      ""
    case List("get", number) => showValue(map.get(key(number.toLong), ValueFields))
    case List("contains", number) => map.contains(key(number.toLong)).toString
    case List("remove", number) => map.remove(key(number.toLong), null).toString
    case List("scan", number) =>
      show(map.prefixScan(prefix(number.toLong), KeyFields, ValueFields).iterator)
    case List("compact", bytes) =>
      map.compact(bytes.toLong)
      ""
    case List("open", name) =>
      views(name) = new OpenView(map.openView())
      ""
    case List("old", name, part, upTo) =>
      map.readTimes(timeOf(part), KeyFields, ValueFields)
      views(name) = new OpenView(map.openOldRows(upTo.toLong))
      ""
    case List("evict", part, upTo, stride) =>
      evict(map, timeOf(part), upTo.toLong, stride.toLong, null).toString
    case List("pages", name) => HeldBytes.pagesToRead(views(name).view).toString
    case List("read", name, count) =>
      views(name).read(count.toInt)
      ""
    case List("watch", name) =>
      views(name).watch()
      ""
    case List("entries", name) => show(views(name).view.rows(KeyFields, ValueFields))
    case List("drop", name) =>
      views.remove(name).get.view.release()
      ""
    case List("release", name) => views.remove(name).get.release()
    case List("held") => (account.bytes + memory.mappedBytes).toString
    case List("rehash") => map.rehashPercent.toString
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }
}

/** A view, and what its reader has read so far. */
private final class OpenView(val view: MapView) {
  private val rows = view.rows(ScriptedRows.KeyFields, ScriptedRows.ValueFields)
  private val entries = mutable.ArrayBuffer.empty[(UnsafeRow, UnsafeRow)]
  private var watcher: Watcher = _

  def read(count: Int): Unit = entries ++= rows.take(count)

  /** Let another thread read all entries, again and again until the release. */
  def watch(): Unit = if (watcher == null) {
    watcher = new Watcher(view)
    watcher.start()
  }

  /** All entries, those that were read before too. */
  def release(): String = {
    if (watcher != null) watcher.end()
    entries ++= rows
    view.release()
    ScriptedRows.show(entries.iterator)
  }
}

/** Reads a view over and over, and compares. */
private final class Watcher(view: MapView) extends Thread("watcher of a view") {
  @volatile private var isOver = false
  @volatile private var difference: Option[String] = None

  override def run(): Unit = {
    val first = entries()
    while (!isOver && difference.isEmpty) {
      val now = entries()
      if (now != first) difference = Some(s"first $first, then $now")
    }
  }

  def end(): Unit = {
    isOver = true
    join()
    difference.foreach(what => throw new AssertionError(what))
  }

  private def entries(): String =
    try ScriptedRows.show(view.rows(ScriptedRows.KeyFields, ScriptedRows.ValueFields))
    catch { case e: Throwable => e.toString }
}
