package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

/**
 * The views of a map that are open, by the epoch that each ended, and the pages that the map has
 * dropped but a view still reads. Those stay charged until the last view that reads them goes.
 */
private[cowstate] final class OpenViews(account: MemoryAccount) {
  import OpenViews._

  private val epochs = new util.TreeMap[Integer, Integer]
  private val dropped = new util.ArrayList[DroppedPage]

  /** The epoch of the newest view, 0 if none is open. */
  def newest: Int = if (epochs.isEmpty) 0 else epochs.lastKey

  def open(epoch: Int): Unit = epochs.merge(epoch, 1, (a, b) => a + b)

  def release(epoch: Int): Unit = {
    epochs.merge(epoch, -1, (a, b) => if (a + b == 0) null else a + b)
    dropped.removeIf { page =>
      val isFree = !isRead(page)
      if (isFree) account.release(page.bytes)
      isFree
    }
  }

  /** The map has dropped, in epoch `at`, a page that it had since epoch `born`. */
  def drop(bytes: Int, born: Int, at: Int): Unit = {
    val page = new DroppedPage(bytes, born, at)
    if (isRead(page)) dropped.add(page) else account.release(bytes)
  }

  /**
   * Views that were opened while the map had the page read it. The newest one before the drop is
   * enough to look at: if it is older than the page, so are all others.
   */
  private def isRead(page: DroppedPage): Boolean = {
    val last = epochs.lowerKey(page.droppedAt)
    last != null && last >= page.born
  }
}

private object OpenViews {
  final class DroppedPage(val bytes: Int, val born: Int, val droppedAt: Int)
}
