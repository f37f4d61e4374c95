package org.apache.spark.sql.execution.streaming.state.cowstate.map

/**
 * Prefetcher of memory: brings the memory that a map will read into the processor's caches. A
 * lookup waits for a line of the table, then for the record. A prefetch requests many lines before
 * the first line has arrived, then the beginnings of all records, then their ends. A prefetch notes
 * no slot in the index; findings about keys go to `fetched`.
 */
private[cowstate] final class Prefetches(
    records: RecordPages, index: KeyIndex, fetched: FetchedKeys) {
  import RecordPages._

  private lazy val addresses = new Array[Long](Prefetches.Window)
  /** Sum of the values read; keeps the compiler from dropping the reads. */
  private[cowstate] var sum = 0L

  /**
   * Fetch the lines and records of keys, by hash. Returns the number of records. Sets `isThere` for
   * each key, unless `isThere` is null.
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

  /** Fetch the records of the next window of `finds`: the task will probably write these next. */
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
  /** Greatest number of keys for one call of `ofKeys`. */
  val Window = 128
}
