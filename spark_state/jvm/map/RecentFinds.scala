package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount

/**
 * Records of the keys read recently, in order, for the writes that follow. Some operators of Spark
 * read all keys of a batch, and then write the keys in the same order. Other operators write each
 * key right after reading the key, or after reading one more key. So the record of a written key is
 * likely the first or the last of the records that were read and not yet written. The map looks at
 * these two records before it searches the table: a search is slow, because the table's lines have
 * left the processor's cache since the read. The map also fetches records into the processor's
 * cache before they are written.
 *
 * All answers are guesses: the caller makes sure that the key's live record is at the address.
 */
private[cowstate] final class RecentFinds(account: MemoryAccount) {
  import RecentFinds._

  private var addresses = new Array[Long](0)
  private var next = 0
  private var end = 0
  private var misses = 0
  /** End of the records fetched ahead. */
  private var windowEnd = 0

  /** Bytes charged to the account. */
  def heldBytes: Long = addresses.length * 8L

  def note(address: Long): Unit = {
    if (end == addresses.length) if (next > end / 2) dropTaken() else grow()
    if (end < addresses.length) {
      addresses(end) = address
      end += 1
    }
  }

  private def grow(): Unit = {
    val length = math.max(MinLength, addresses.length * 2)
    val more = (length - addresses.length) * 8L
    if (length <= MaxLength && account.permits(more)) {
      account.grant(more)
      addresses = java.util.Arrays.copyOf(addresses, length)
    }
  }

  /**
   * Drop the taken records, and move the records left to the front. Call only when more than half
   * of the records were taken, so that the move costs little.
   */
  private def dropTaken(): Unit = {
    System.arraycopy(addresses, next, addresses, 0, end - next)
    end -= next
    windowEnd = math.max(windowEnd - next, 0)
    next = 0
  }

  /** Return the first record left; 0 if none is left. */
  def first: Long = if (next < end) addresses(next) else 0L

  def last: Long = if (next < end) addresses(end - 1) else 0L

  /**
   * True if a new window should begin: the first record left was not fetched ahead, and more than a
   * few records are left. A few records need no window, because they were just read.
   */
  def needsWindow: Boolean = next >= windowEnd && end - next >= MinWindow

  /** Begin a window at the first record left. Returns the number of records in the window. */
  def beginWindow(): Int = {
    windowEnd = math.min(next + Window, end)
    windowEnd - next
  }

  /** Return a record of the current window. */
  def inWindow(index: Int): Long = addresses(next + index)

  def tookFirst(): Unit = {
    misses = 0
    next += 1
    if (next == end) clear()
  }

  /**
   * Forget all records, because the last record was taken. The operator has read the earlier
   * records without writing their keys, and does not go back to these keys.
   */
  def tookLast(): Unit = clear()

  /**
   * Count a miss: the record of the written key was neither the first nor the last record left.
   * After many misses in a row, forget all records, because the writes come in another order.
   */
  def missed(): Unit = {
    misses += 1
    if (misses > MostMisses) clear()
  }

  def clear(): Unit = {
    next = 0
    end = 0
    misses = 0
    windowEnd = 0
  }
}

private object RecentFinds {
  private val MinLength = 1 << 8
  private val MaxLength = 1 << 20
  /** Number of records fetched together: at least as many as a processor can fetch at once. */
  private val Window = 32
  private val MinWindow = 4
  private val MostMisses = 64
}
