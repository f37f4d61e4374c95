package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The records of a map whose time is `upTo` or before, some at a time, for whoever removes them. The
 * lines of the table that lead to them are read ahead.
 *
 * Each of them comes once if the map is changed in one way only meanwhile: by `removeAt`, which
 * moves no other record.
 */
private[cowstate] final class OldRecords(
    map: CopyOnWritePagedMap,
    records: RecordPages,
    index: KeyIndex,
    zones: ZoneMap,
    upTo: Long,
    keyFields: Int) {
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
  private val keyInMap = new UnsafeRow(keyFields)
  /** Keeps the compiler from dropping the reads. */
  private var sum = 0L

  /**
   * Go on; returns how many there are now, from 0 on, and 0 at the end. `f` is called with the number
   * and the key of each. The key is where it is in the map, and is used at once.
   */
  def next(f: (Int, UnsafeRow) => Unit): Int = map.synchronized {
    while (taken == ofPageCount && pages.hasNext) collect(pages.next())
    if (taken == ofPageCount) leavePage()
    val count = math.min(OldRecords.Window, ofPageCount - taken)
    var i = 0
    while (i < count) {
      addresses(i) = ofPage(taken + i)
      pointToKey(addresses(i))
      hashes(i) = KeyIndex.hashOf(keyInMap)
      f(i, keyInMap)
      i += 1
    }
    taken += count
    sum += index.readLines(hashes, count)
    count
  }

  def address(i: Int): Long = addresses(i)

  /** The hash of the key. */
  def hash(i: Int): Int = hashes(i)

  private def pointToKey(address: Long): Unit = keyInMap.pointTo(
    records.base(address), records.offset(address) + records.headerBytes,
    records.getInt(address, KeyLength))

  private def collect(number: Int): Unit = {
    leavePage()
    page = number
    taken = 0
    ofPageCount = 0
    records.foreachLive(number)(address => if (zones.timeOf(address) <= upTo) add(address))
  }

  private def leavePage(): Unit = if (page != 0) {
    map.dropIfDead(page)
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
