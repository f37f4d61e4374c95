package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Iterator, in portions, over the records of a map whose time is `upTo` or before. The caller
 * removes the records. So the lines of the table that lead to the records of a portion are brought
 * into the processor's cache.
 *
 * Each record comes once if the map is changed by `removeAt` only, because `removeAt` moves no
 * other record.
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
  /** Number of the current page, 0 before the first page. */
  private var page = 0
  /** Old records of the current page; the first `taken` records were given out. */
  private var ofPage = new Array[Long](OldRecords.Window)
  private var ofPageCount = 0
  private var taken = 0
  private val addresses = new Array[Long](OldRecords.Window)
  private val hashes = new Array[Int](OldRecords.Window)
  private val keyInMap = new UnsafeRow(keyFields)
  /** Sum of the values read; keeps the compiler from dropping the reads. */
  private var sum = 0L

  /**
   * Go to the next portion, and call `f` with the number and the key of each record. The numbers
   * begin at 0 in each portion. The key lies in the map's memory, so `f` uses the key at once.
   * Returns the number of records in the portion, 0 at the end.
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

  /** Return the hash of record i's key. */
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
  /** Greatest number of records in a portion. */
  val Window: Int = Prefetches.Window
}
