package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StateId, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.Words
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.StateMemory

/**
 * Newest state of a store and, through undo logs, the versions before.
 *
 * One writer at a time changes the map in place. Aborting the writer, or going back to an older
 * version to run a batch again, undoes changes and costs as much as making them. A reader of any
 * held version looks into the undo logs first. All methods, and all uses of the map, are
 * synchronized on the map.
 *
 * @param memory           memory for undo logs
 * @param versionsToRetain number of versions that are retained, the newest included
 */
private[cowstate] final class VersionedState(
    val map: CopyOnWritePagedMap,
    memory: StateMemory,
    versionsToRetain: Int,
    start: StateId) {
  private var newest = start
  /** Undo logs of committed versions, newest first, each with the state to which it leads back. */
  private val older = new util.ArrayDeque[(StateId, UndoLog)]
  private var writing: UndoLog = _
  @volatile private var broken = false

  /**
   * True if a change or its undoing failed half-way: the map equals no version, and cannot be read.
   */
  def isBroken: Boolean = broken || map.synchronized(map.isBroken)

  def head: StateId = newest

  def size: Int = map.size

  /** Return the states that can be read, the newest first. */
  def held: Seq[StateId] = map.synchronized {
    val states = Seq.newBuilder[StateId]
    states += newest
    older.forEach(entry => states += entry._1)
    states.result()
  }

  /** Begin a version on top of `base`, undoing newer versions. `base` must be held. */
  def begin(base: StateId): UndoLog = map.synchronized {
    assert(writing == null, "a version is being written already")
    while (newest != base) {
      val (before, log) = older.peek()
      undo(log)
      older.poll()
      newest = before
    }
    writing = new UndoLog(map.beginEpoch(), memory)
    writing
  }

  /** Make the written version the newest state. */
  def commit(committed: StateId): Unit = map.synchronized {
    older.push((newest, writing))
    newest = committed
    writing = null
    while (older.size >= math.max(versionsToRetain, 1)) older.pollLast()._2.close()
  }

  /** Undo the version being written, unless the state is broken or unloaded. */
  def abort(): Unit = map.synchronized {
    if (writing != null && !memory.isClosed) {
      if (isBroken) writing.close() else undo(writing)
      writing = null
    }
  }

  private def undo(log: UndoLog): Unit = {
    try log.rollBack(map)
    catch {
      case e: Throwable =>
        broken = true
        throw e
    }
    log.close()
  }

  /** Return a key's value in a held state, null if the key is absent. */
  def get(state: StateId, key: UnsafeRow, valueFields: Int): UnsafeRow = map.synchronized {
    undoneIn(state).flatMap(_.valueBefore(key)).nextOption() match {
      case Some(null) => null
      case Some(old) =>
        UndoLog.read(key, old, map.checksums)
        withFields(old, valueFields)
      case None => map.get(key, valueFields)
    }
  }

  /** Prefetch as CopyOnWritePagedMap does. Fetches nothing if the state cannot be read. */
  def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int = map.synchronized {
    if (memory.isClosed || isBroken) 0 else map.prefetch(hashes, count, isThere)
  }

  /**
   * Return all entries of a held state, and a function to call when the entries are not needed any
   * more.
   */
  def entries(
      state: StateId,
      keyFields: Int,
      valueFields: Int): (Iterator[(UnsafeRow, UnsafeRow)], () => Unit) =
    map.synchronized {
      val before = new util.HashMap[UnsafeRow, UnsafeRow]
      undoneIn(state).foreach(_.foreach((key, old) =>
          if (!before.containsKey(key)) before.put(key, old)))
      val undone = valuesOf(before, keyFields, valueFields)
      // Copy the keys: the logs may be gone when the rows are read.
      val changed = new util.HashSet[UnsafeRow]
      before.forEach((key, _) => changed.add(withFields(key, keyFields)))
      val view = map.openView()
      val unchanged = view.rows(keyFields, valueFields)
        .filterNot { case (key, _) => !changed.isEmpty && changed.contains(key) }
      (unchanged ++ undone.iterator, () => view.release())
    }

  /** Copy the rows of `before`: keys with their values from undo logs. A null value is left out. */
  private def valuesOf(
      before: util.Map[UnsafeRow, UnsafeRow],
      keyFields: Int,
      valueFields: Int): Seq[(UnsafeRow, UnsafeRow)] = {
    val rows = Seq.newBuilder[(UnsafeRow, UnsafeRow)]
    before.forEach { (key, old) =>
      if (old != null) {
        UndoLog.read(key, old, map.checksums)
        rows += ((withFields(key, keyFields), withFields(old, valueFields)))
      }
    }
    rows.result()
  }

  /**
   * Return the entries of a held state whose key begins with a prefix. The cost is the number of
   * entries found and, for an older state, a pass over the undo logs between that state and the
   * newest.
   */
  def prefixScan(
      state: StateId, prefix: UnsafeRow, shape: StoreShape): Seq[(UnsafeRow, UnsafeRow)] =
    map.synchronized {
      val before = new util.HashMap[UnsafeRow, UnsafeRow]
      undoneIn(state).foreach(_.foreach((key, old) =>
          if (map.prefixOf.get(key) == prefix && !before.containsKey(key)) before.put(key, old)))
      val unchanged = map.prefixScan(prefix, shape.keyFields, shape.valueFields).toSeq
        .filterNot { case (key, _) => before.containsKey(key) }
      unchanged ++ valuesOf(before, shape.keyFields, shape.valueFields)
    }

  /** Return the logs between a state and the present, oldest first. */
  private def undoneIn(state: StateId): Iterator[UndoLog] = {
    if (isBroken) throw new CowStateException(s"version ${state.version} is not held any more")
    var logs = if (writing == null) List.empty[UndoLog] else List(writing)
    if (state != newest) {
      val newer = older.iterator
      var isReached = false
      while (!isReached) {
        if (!newer.hasNext) {
          throw new CowStateException(s"version ${state.version} is not held any more")
        }
        val (before, log) = newer.next()
        logs = log :: logs
        isReached = before == state
      }
    }
    logs.iterator
  }

  private def withFields(row: UnsafeRow, fields: Int): UnsafeRow =
    Words.rowOf(
      row.getBaseObject, row.getBaseOffset, row.getSizeInBytes, fields)
}
