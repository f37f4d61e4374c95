package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The records of a map whose time is `upTo` or before, some at a time, for whoever removes them. The
 * lines of the table that lead to them are read ahead.
 *
 * Each of them comes once if the map is changed in one way only meanwhile: by `removeAt`, which
 * moves no other record.
 *
 * @param dropIfDead frees a page, by its number, if all of it has died
 */
private[cowstate] final class OldRecords(
    records: RecordPages, index: KeyIndex, zones: ZoneMap, upTo: Long, dropIfDead: Int => Unit) {
  import RecordPages._

  private val pages = records.numbers.filter(zones.takeOld(_, upTo))
  /** The number of the page whose records come now, 0 before the first one. */
  private var page = 0
  /** Those of one page, of which some were given out. */
  private var ofPage = new Array[Long](OldRecords.Window)
  private var ofPageCount = 0
  private var taken = 0
  private val addresses = new Array[Long](OldRecords.Window)
  private val hashes = new Array[Int](OldRecords.Window)
  private val scratchKey = new UnsafeRow(0)
  /** Keeps the compiler from dropping the reads. */
  private var sum = 0L

  /** Go on; returns how many there are now, from 0 on, and 0 at the end. */
  def next(): Int = {
    while (taken == ofPageCount && pages.hasNext) collect(pages.next())
    if (taken == ofPageCount) leavePage()
    val count = math.min(OldRecords.Window, ofPageCount - taken)
    var i = 0
    while (i < count) {
      addresses(i) = ofPage(taken + i)
      pointToKey(i, scratchKey)
      hashes(i) = KeyIndex.hashOf(scratchKey)
      i += 1
    }
    taken += count
    sum += index.readLines(hashes, count)
    count
  }

  def address(i: Int): Long = addresses(i)

  /** The hash of the key. */
  def hash(i: Int): Int = hashes(i)

  /** Point a row at the key, where it is in the map. */
  def pointToKey(i: Int, row: UnsafeRow): Unit = {
    val address = addresses(i)
    row.pointTo(
      records.base(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength))
  }

  private def collect(number: Int): Unit = {
    leavePage()
    page = number
    taken = 0
    ofPageCount = 0
    records.foreachLive(number)(address => if (zones.timeOf(address) <= upTo) add(address))
  }

  private def leavePage(): Unit = if (page != 0) {
    dropIfDead(page)
    page = 0
  }

  private def add(address: Long): Unit = {
    if (ofPageCount == ofPage.length) ofPage = util.Arrays.copyOf(ofPage, ofPageCount * 2)
    ofPage(ofPageCount) = address
    ofPageCount += 1
  }
}

private[cowstate] object OldRecords {
  /** How many come at a time, at most. */
  val Window: Int = Prefetches.Window
}
