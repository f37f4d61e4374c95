package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState

/**
 * Reads one state. The caller owns the rows. The store uses `loaded` until the store is released or
 * the task ends. The end of the task counts, because aggregations never release their stores.
 */
private[cowstate] final class CowReadStore(
    store: ProvidedStore, loaded: LoadedState, state: StateId)
  extends WithoutColumnFamilies with PrefetchingStore {
  private val shape = store.shape
  @volatile private var writer: CowStateStore = _
  private var views = List.empty[() => Unit]
  private var released = false
  Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => release()))
  StoresOfTask.opened(this)

  override def id: StateStoreId = store.id
  override def version: Long = state.version

  /** From now on, read the rows of the write store of the same task. */
  def upgradedTo(store: CowStateStore): Unit = writer = store

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    only(colFamilyName)
    if (writer != null) writer.get(key, colFamilyName)
    else loaded.versions.get(state, key, shape.valueFields)
  }

  override def isWriting: Boolean = false

  override def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int =
    loaded.versions.prefetch(hashes, count, isThere)

  /** Return all rows. The iterator of a write store may return old rows only, see EvictionScan. */
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    only(colFamilyName)
    if (writer != null) return writer.allRows()
    val (rows, release) = loaded.versions.entries(state, shape.keyFields, shape.valueFields)
    views = release :: views
    CowStateStore.pairs(RowsAndRelease(rows, release))
  }

  override def prefixScan(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    only(colFamilyName)
    if (writer != null) return writer.prefixScan(prefixKey, colFamilyName)
    if (shape.prefixColumns == 0) refuse("prefixScan")
    val entries = loaded.versions.prefixScan(state, prefixKey, shape)
    CowStateStore.pairs(RowsAndRelease(entries.iterator, () => ()))
  }

  override def abort(): Unit = release()

  override def release(): Unit = synchronized {
    views.foreach(_())
    views = Nil
    if (!released) loaded.leave()
    released = true
  }
}

private[cowstate] object CowReadStore {
  /** Return a reader that is the only user of the state `own`. */
  def owning(store: ProvidedStore, own: LoadedState): CowReadStore =
    new CowReadStore(store, own, own.versions.head)
}
