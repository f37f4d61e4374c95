package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MemoryAccount, StateMemory
}

/**
 * The open views of a map, and the memory that the map has dropped but a view still reads: pages
 * and bitmaps. Dropped memory is freed, and no longer charged, when the last view that reads the
 * memory is released. Opening a view ends an epoch of the map; the view is counted under the epoch.
 */
private[cowstate] final class OpenViews(account: MemoryAccount) {
  import OpenViews._

  private val epochs = new util.TreeMap[Integer, Integer]
  private val dropped = new util.ArrayList[Dropped]

  /** Epoch of the newest open view, 0 if no view is open. No view reads records of later epochs. */
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
   * epoch `born`. The bitmap is on the heap, so there is no memory to free: once no view reads the
   * bitmap, its bytes are taken off the account.
   */
  def drop(bytes: Long, born: Int, at: Int): Unit = drop(born, at, () => account.release(bytes))

  private def drop(born: Int, at: Int, free: () => Unit): Unit =
    if (isRead(born, at)) dropped.add(new Dropped(born, at, free)) else free()

  /**
   * True if an open view may read the dropped memory: a view that was opened from epoch `born` on,
   * and before epoch `droppedAt`. The newest view before `droppedAt` decides: if this view is older
   * than the memory, all earlier views are older, too.
   */
  private def isRead(born: Int, droppedAt: Int): Boolean = {
    val last = epochs.lowerKey(droppedAt)
    last != null && last >= born
  }
}

private object OpenViews {
  final class Dropped(val born: Int, val droppedAt: Int, val free: () => Unit)
}
