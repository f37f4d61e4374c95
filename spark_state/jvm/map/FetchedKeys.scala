package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

/**
 * Notes of a prefetch about keys, by hash, for the lookups that follow. With a note, a lookup does
 * not search the table again. A search is slow because the processor predicts its branches badly.
 *
 * The note `KeyIndex.Absent` says that no key has the hash. This note is reliable, because every
 * insertion updates the notes. A noted address is a guess: the caller makes sure that the key's
 * live record is there. The notes take 3 KiB, not charged to any account.
 */
private[cowstate] final class FetchedKeys {
  import FetchedKeys._

  /**
   * Noted hashes, each at the index given by its lowest bits. A later hash replaces an earlier hash
   * at the same index. `noted` has the addresses at the same indexes.
   */
  private var hashes: Array[Int] = _
  private var noted: Array[Long] = _
  private var isEmpty = true

  /**
   * Note an address for a hash. The address may also be `KeyIndex.Absent`, or 0 if nothing is
   * known.
   */
  def note(hash: Int, address: Long): Unit = {
    if (hashes == null) {
      hashes = new Array[Int](Places)
      noted = new Array[Long](Places)
    }
    isEmpty = false
    hashes(hash & Mask) = hash
    noted(hash & Mask) = address
  }

  /** Return the address noted for a hash, or 0. */
  def of(hash: Int): Long =
    if (!isEmpty && hashes(hash & Mask) == hash) noted(hash & Mask) else 0L

  /** Update the note of a hash: a key with the hash was added, with its record at `address`. */
  def added(hash: Int, address: Long): Unit =
    if (!isEmpty && hashes(hash & Mask) == hash) noted(hash & Mask) = address

  /** Return the noted addresses, for tests. */
  def addresses: Seq[Long] =
    if (isEmpty) Nil else noted.toSeq.filter(_ > KeyIndex.Absent)

  /** Forget all notes. Call before page numbers are used again. */
  def clear(): Unit = if (!isEmpty) {
    isEmpty = true
    util.Arrays.fill(noted, 0L)
  }
}

private object FetchedKeys {
  /** Number of places: more than the keys of a prefetch, so a key rarely replaces another. */
  private val Places = 256
  private final val Mask = Places - 1
}
