package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.unsafe.Platform

/**
 * Least event time of each page. A search for old rows skips the pages without old rows (G.
 * Moerkotte, "Small Materialized Aggregates", VLDB 1998). New rows go to the tail, so rows that
 * arrive at about the same time lie in the same pages.
 *
 * The least time of a page is a lower bound for the times of the page's live records. After the
 * oldest record has died, the bound may be too low. Records added to a page, whether by puts,
 * undoing, or compaction, are read at the next call of `readNew` or `takeOld`. A change in place
 * must be reported with `changed`. The zone map takes 16 bytes for each page, not charged to any
 * account.
 */
private[cowstate] final class ZoneMap(records: RecordPages, val times: TimeReader) {
  import RecordPages._

  /**
   * By page number: the serial number of the page, the number of bytes read, and the least time
   * found.
   */
  private var serials = new Array[Int](0)
  private var ends = new Array[Int](0)
  private var leasts = new Array[Long](0)

  /** Read the records added to a page since the last read. */
  def readNew(number: Int): Unit = {
    if (!knows(number)) forget(number)
    records.foreachLive(number, ends(number)) { address =>
      leasts(number) = math.min(leasts(number), timeOf(address))
    }
    ends(number) = records.usedBytes(number)
  }

  /**
   * True if a page may have live rows with a time of `upTo` or before. If so, these rows are
   * removed next, so the zone map forgets the page. The next request reads the page again, and
   * finds the rows that are left, or all rows if the batch was aborted.
   */
  def takeOld(number: Int, upTo: Long): Boolean = {
    readNew(number)
    val isOld = leasts(number) <= upTo
    if (isOld) forget(number)
    isOld
  }

  /** Note that a record got another value in place. */
  def changed(address: Long): Unit = if (!times.time.isOfKey) {
    val number = pageOf(address)
    if (knows(number)) leasts(number) = math.min(leasts(number), timeOf(address))
  }

  /** True if the zone map knows this page, not only an earlier page with the same number. */
  private def knows(number: Int): Boolean =
    number < serials.length && serials(number) == records.serial(number)

  private def forget(number: Int): Unit = {
    if (number >= serials.length) {
      val length = math.max(number + 1, serials.length * 2)
      serials = util.Arrays.copyOf(serials, length)
      ends = util.Arrays.copyOf(ends, length)
      leasts = util.Arrays.copyOf(leasts, length)
    }
    serials(number) = records.serial(number)
    ends(number) = 0
    leasts(number) = RowTime.Never
  }

  def timeOf(address: Long): Long = {
    val base = records.base(address)
    val at = records.offset(address)
    times.read(
      base, at + records.headerBytes, Platform.getInt(base, at + KeyLength),
      Platform.getInt(base, at + ValueLength))
  }
}
