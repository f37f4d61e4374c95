package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MemoryAccount, StateMemory
}

/**
 * Open views of a map, by the epoch that each view ended; and dropped memory: pages and bitmaps
 * that the map does not need any more, but a view still reads. Dropped memory stays held, and
 * charged, until the release of the last view that reads the memory.
 */
private[cowstate] final class OpenViews(account: MemoryAccount) {
  import OpenViews._

  private val epochs = new util.TreeMap[Integer, Integer]
  private val dropped = new util.ArrayList[Dropped]

  /** Epoch of the newest open view, 0 if no view is open. No view shares records written later. */
  private var newestEpoch = 0

  def newest: Int = newestEpoch

  def open(epoch: Int): Unit = {
    epochs.merge(epoch, 1, (a, b) => a + b)
    newestEpoch = epochs.lastKey
  }

  def release(epoch: Int): Unit = {
    epochs.merge(epoch, -1, (a, b) => if (a + b == 0) null else a + b)
    newestEpoch = if (epochs.isEmpty) 0 else epochs.lastKey
    dropped.removeIf { each =>
      val isFree = !isRead(each.born, each.droppedAt)
      if (isFree) each.free()
      isFree
    }
  }

  /** Note that the map has dropped, in epoch `at`, a page that existed since epoch `born`. */
  def drop(page: Block, memory: StateMemory, born: Int, at: Int): Unit =
    drop(born, at, () => memory.free(page))

  /**
   * Note that the map has dropped, in epoch `at`, a bitmap of `bytes` bytes that existed since
   * epoch `born`. The bitmap is on the heap, so only the account has to release it.
   */
  def drop(bytes: Long, born: Int, at: Int): Unit = drop(born, at, () => account.release(bytes))

  private def drop(born: Int, at: Int, free: () => Unit): Unit =
    if (isRead(born, at)) dropped.add(new Dropped(born, at, free)) else free()

  /**
   * True if a view was opened while the map had the dropped memory. A look at the newest view
   * before the drop is enough: if that view is older than the dropped memory, all earlier views
   * are, too.
   */
  private def isRead(born: Int, droppedAt: Int): Boolean = {
    val last = epochs.lowerKey(droppedAt)
    last != null && last >= born
  }
}

private object OpenViews {
  final class Dropped(val born: Int, val droppedAt: Int, val free: () => Unit)
}
