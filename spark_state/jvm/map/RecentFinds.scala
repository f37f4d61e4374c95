package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * The records of the keys that were read, in order, for the writes that follow. Operators of Spark
 * read all keys of a batch and then write them in the same order, or write each key right after
 * they have read it or the one behind it. So the record of a key that is written is likely the first
 * that is left, or the last. Then the table is not searched again, whose lines have left the
 * processor's cache by then, and the records to come can be fetched ahead.
 *
 * It only guesses: whoever takes an address makes sure that the key's live record is there.
 */
private[cowstate] final class RecentFinds(account: MemoryAccount) {
  import RecentFinds._

  private var addresses = new Array[Long](0)
  private var next = 0
  private var end = 0
  private var misses = 0
  /** The end of what has been fetched ahead. */
  private var windowEnd = 0

  /** Bytes that are charged. */
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

  /** Copies fewer than were taken since the last time. */
  private def dropTaken(): Unit = {
    System.arraycopy(addresses, next, addresses, 0, end - next)
    end -= next
    windowEnd = math.max(windowEnd - next, 0)
    next = 0
  }

  /** The first that is left; 0 if none is. */
  def first: Long = if (next < end) addresses(next) else 0L

  def last: Long = if (next < end) addresses(end - 1) else 0L

  /** Whether the first that is left is in no window yet. A few that are left were just read. */
  def needsWindow: Boolean = next >= windowEnd && end - next >= MinWindow

  /** Begin a window at the first that is left; returns how many are in it. */
  def beginWindow(): Int = {
    windowEnd = math.min(next + Window, end)
    windowEnd - next
  }

  /** One of the window that has begun. */
  def inWindow(index: Int): Long = addresses(next + index)

  def tookFirst(): Unit = {
    misses = 0
    next += 1
    if (next == end) clear()
  }

  /** Those before it were read and not written, so they will not be. */
  def tookLast(): Unit = clear()

  /** The key was neither. Writes may come in another order altogether. */
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
  /** Enough for the processor to fetch as many at once as it can. */
  private val Window = 32
  private val MinWindow = 4
  private val MostMisses = 64
}
