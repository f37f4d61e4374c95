package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.metric.SQLMetric

/**
 * Scan for an operator that evicts old rows from its store. The scan gives only the old rows that
 * the operator has to evict itself, and may remove other old rows from the store.
 *
 * `CowStateStore.iterator` returns this scan if the plan told the running task, through
 * StoresOfTask, what the operator evicts from the store. Before the commit, the operator calls
 * `iterator` only to evict, and only when the operator has read all input. After the commit,
 * `iterator` returns all rows. A reader of the state in the same task always gets all rows.
 *
 * @param oldRowCount metric for old rows found
 */
private[cowstate] final class EvictionScan private (
    store: CowStateStore, eviction: StoreEviction, oldRowCount: SQLMetric) {

  /** Return the rows; None if the store with the times of the rows is not open. */
  def open(): Option[RowsAndRelease] = storeOfTimes.map { times =>
    if (times eq store) counted(store.oldRows(eviction)) else keysOfOldValues(times)
  }

  private def storeOfTimes: Option[CowStateStore] =
    if (eviction.timesIn == store.id.storeName) Some(store)
    else store.ofSamePartition.find(_.id.storeName == eviction.timesIn)

  /**
   * Return the counts of keys with old values. If the operator does not need the rows, the store
   * first removes as many rows as possible.
   */
  private def keysOfOldValues(values: CowStateStore): RowsAndRelease = {
    val mayRemove = eviction.leavesTo(store.id.storeName)
    val left = StoresOfTask.removedCount(store.id).filter(_ => mayRemove).map { removedCount =>
      val evicted = new LoneOldValues(store, values, eviction).remove()
      removedCount += evicted.removed
      oldRowCount += evicted.removed
      evicted.left
    }
    if (left.contains(0L)) RowsAndRelease(Iterator.empty, () => ())
    else {
      val old = values.oldRows(eviction)
      counted(old.copy(rows = new KeysOfOldValues(store, values, eviction, old.rows)))
    }
  }

  private def counted(old: RowsAndRelease): RowsAndRelease =
    old.copy(rows = old.rows.tapEach(_ => oldRowCount += 1))
}

private[cowstate] object EvictionScan {
  /** Return the scan of a store; None if the task does not know what the operator evicts. */
  def of(store: CowStateStore): Option[EvictionScan] =
    StoresOfTask.evictionFrom(store.id).filter(_ => store.isOfOperator).map {
      case (eviction, oldRowCount) => new EvictionScan(store, eviction, oldRowCount)
    }
}

/** Rows of a scan, and the release of the scan's memory. */
private[cowstate] final case class RowsAndRelease(
    rows: Iterator[(UnsafeRow, UnsafeRow)], release: () => Unit)
