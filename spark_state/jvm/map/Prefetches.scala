package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * Brings what a map will read into the processor's caches. A lookup waits for a line of the table,
 * then for the record. Here many lines are asked for before the first one is there, then the
 * beginnings of all records, then their ends. Nothing is noted in the index; what is found out about
 * keys is noted in `fetched`.
 */
private[cowstate] final class Prefetches(
    records: RecordPages, index: KeyIndex, fetched: FetchedKeys) {
  import RecordPages._

  private lazy val addresses = new Array[Long](Prefetches.Window)
  /** Keeps the compiler from dropping the reads. */
  private[cowstate] var sum = 0L

  /**
   * For keys that will be looked up, by their hashes. Returns how many records there are, and tells
   * for each key in `isThere`, unless that is null.
   */
  def ofKeys(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int = {
    var read = index.readLines(hashes, count)
    var recordCount = 0
    var i = 0
    while (i < count) {
      val address = index.glance(hashes(i))
      fetched.note(hashes(i), address)
      addresses(i) = if (address == KeyIndex.Absent) 0L else address
      if (isThere != null) isThere(i) = addresses(i) != 0
      i += 1
    }
    i = 0
    while (i < count) {
      val address = addresses(i)
      if (address != 0) read += records.getInt(address, Modified)
      i += 1
    }
    i = 0
    while (i < count) {
      val address = addresses(i)
      if (address != 0) {
        read += records.getInt(address, records.sizeOf(address) - 4)
        recordCount += 1
      }
      i += 1
    }
    sum = read
    recordCount
  }

  /** The records that are likely written next. */
  def ofWindow(finds: RecentFinds): Unit = {
    val count = finds.beginWindow()
    var read = 0L
    var i = 0
    while (i < count) {
      val address = finds.inWindow(i)
      if (records.isAlive(address)) read += records.getInt(address, Modified)
      i += 1
    }
    i = 0
    while (i < count) {
      val address = finds.inWindow(i)
      if (records.isAlive(address)) read += records.getInt(address, records.sizeOf(address) - 4)
      i += 1
    }
    sum = read
  }
}

private[cowstate] object Prefetches {
  /** How many keys may be fetched at once. */
  val Window = 128
}
