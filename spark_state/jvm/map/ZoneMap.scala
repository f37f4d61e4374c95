package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.unsafe.Platform

/**
 * The least event time in each page, so that whoever looks for old rows passes over the pages that
 * have none (G. Moerkotte, "Small Materialized Aggregates", VLDB 1998). New rows go to the tail, so
 * rows that come at about the same time are in the same pages.
 *
 * A least time is never above the times of the live records that it stands for; it may be below,
 * because records die. What a page has got since it was looked at last is read when it is asked for
 * again, wherever it came from: puts, undoing, or compaction. A change in place has to be told.
 * It takes 16 bytes a page, which are not charged.
 */
private[cowstate] final class ZoneMap(records: RecordPages, val times: TimeReader) {
  import RecordPages._

  /** By number of page: which page it was, up to which byte it was read, and what was found. */
  private var serials = new Array[Int](0)
  private var ends = new Array[Int](0)
  private var leasts = new Array[Long](0)

  /** Read what a page has got since it was read last. */
  def readNew(number: Int): Unit = {
    if (!knows(number)) forget(number)
    records.foreachLive(number, ends(number)) { address =>
      leasts(number) = math.min(leasts(number), timeOf(address))
    }
    ends(number) = records.usedBytes(number)
  }

  /**
   * Whether a page may have live rows with this time or before. If so, its rows will all be read
   * again: those that are old are removed meanwhile, or are not, if the batch is aborted.
   */
  def takeOld(number: Int, upTo: Long): Boolean = {
    readNew(number)
    val isOld = leasts(number) <= upTo
    if (isOld) forget(number)
    isOld
  }

  /** A record has got another value where it is. */
  def changed(address: Long): Unit = if (!times.time.isOfKey) {
    val number = pageOf(address)
    if (knows(number)) leasts(number) = math.min(leasts(number), timeOf(address))
  }

  /** Numbers of pages are used again. */
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
