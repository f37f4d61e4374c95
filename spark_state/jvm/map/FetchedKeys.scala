package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

/**
 * What a prefetch has found out about keys, by their hashes, for the lookups that follow: so that
 * these need not search the table again, in which the processor guesses each branch badly.
 *
 * That there is no key with a hash is certain: whoever adds a key tells it. An address is a guess.
 * Whoever takes it makes sure that the key's live record is there. The notes take 3 KiB, which are
 * not charged.
 */
private[cowstate] final class FetchedKeys {
  import FetchedKeys._

  /** By the lowest bits of the hash; a later key takes the place of an earlier one. */
  private var hashes: Array[Int] = _
  private var noted: Array[Long] = _
  private var isEmpty = true

  /** The address may also be `KeyIndex.Absent`, or 0 if nothing is known. */
  def note(hash: Int, address: Long): Unit = {
    if (hashes == null) {
      hashes = new Array[Int](Places)
      noted = new Array[Long](Places)
    }
    isEmpty = false
    hashes(hash & Mask) = hash
    noted(hash & Mask) = address
  }

  /** What was noted of a hash, or 0. */
  def of(hash: Int): Long =
    if (!isEmpty && hashes(hash & Mask) == hash) noted(hash & Mask) else 0L

  /** A key with this hash was added, with its record at an address. */
  def added(hash: Int, address: Long): Unit =
    if (!isEmpty && hashes(hash & Mask) == hash) noted(hash & Mask) = address

  /** For tests: the addresses that are noted. */
  def addresses: Seq[Long] =
    if (isEmpty) Nil else noted.toSeq.filter(_ > KeyIndex.Absent)

  /** To be called before numbers of pages are used again. */
  def clear(): Unit = if (!isEmpty) {
    isEmpty = true
    util.Arrays.fill(noted, 0L)
  }
}

private object FetchedKeys {
  /** Several for each key of a window of rows, so that few keys take the place of others. */
  private val Places = 256
  private final val Mask = Places - 1
}
