package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

/**
 * The views of a map that are open, by the epoch that each ended, and what the map has dropped but
 * a view still reads: pages, and bitmaps of pages. That stays held, and charged, until the last view
 * that reads it goes.
 */
private[cowstate] final class OpenViews(account: MemoryAccount) {
  import OpenViews._

  private val epochs = new util.TreeMap[Integer, Integer]
  private val dropped = new util.ArrayList[Dropped]

  /** The epoch of the newest view, 0 if none is open: what was written later is not shared. */
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

  /** The map has dropped, in epoch `at`, a page that it had since epoch `born`. */
  def drop(page: Block, memory: StateMemory, born: Int, at: Int): Unit =
    drop(born, at, () => memory.free(page))

  /** The same of something on the heap that only the account knows of. */
  def drop(bytes: Long, born: Int, at: Int): Unit = drop(born, at, () => account.release(bytes))

  private def drop(born: Int, at: Int, free: () => Unit): Unit =
    if (isRead(born, at)) dropped.add(new Dropped(born, at, free)) else free()

  /**
   * Views that were opened while the map had it read it. The newest one before the drop is enough
   * to look at: if it is older than what was dropped, so are all others.
   */
  private def isRead(born: Int, droppedAt: Int): Boolean = {
    val last = epochs.lowerKey(droppedAt)
    last != null && last >= born
  }
}

private object OpenViews {
  final class Dropped(val born: Int, val droppedAt: Int, val free: () => Unit)
}
