package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * The entries of a map at one moment: its pages, and the epoch that ended then. The records
 * themselves tell what was written or removed in a later epoch, so nothing of the table is copied.
 *
 * A view of epoch e shows a record if it got its content up to e, and did not die up to e. That is
 * one record of each key that the map had, whatever the map does afterwards:
 *
 *     epoch 5                  epoch 6: another value, then a removal
 *     A   modified 5           A   modified 5, died 6       shown by a view of 5
 *                              A'  modified 6, died 6       not shown
 *
 *   - A record is changed in place only if it was modified after every open view, so no view shows
 *     it, before or after.
 *   - Links between records do change, but a view walks pages, not chains.
 *   - Compaction copies records as they are, epochs too; the copies lie in new pages, or behind the
 *     `used` bytes of a page that the view has.
 *   - A page that the map drops is still in the view's array; only its number is given out again.
 */
final class MapView private[cowstate] (
    map: CopyOnWritePagedMap,
    pages: Array[Array[Byte]],
    used: Array[Int],
    private[cowstate] val epoch: Int,
    headerBytes: Int) {
  import RecordPages._

  private val checksums = map.checksums
  private var released = false

  /** Let the map change in place what this view shares with it. Safe to call again. */
  def release(): Unit = map.synchronized {
    if (!released) {
      released = true
      map.release(this)
    }
  }

  /** Rows of its own for each entry. */
  def rows(keyFields: Int, valueFields: Int): Iterator[(UnsafeRow, UnsafeRow)] =
    new Iterator[(UnsafeRow, UnsafeRow)] {
      private val walk = cursor()
      private var ahead = walk.next()
      override def hasNext: Boolean = ahead
      override def next(): (UnsafeRow, UnsafeRow) = {
        if (!ahead) throw new NoSuchElementException("end of the state")
        checksums.read(
          walk.page, walk.keyOffset, walk.keyLength + walk.valueLength, walk.checksum)
        val key = CopyOnWritePagedMap.rowOf(walk.page, walk.keyOffset, walk.keyLength, keyFields)
        val value = CopyOnWritePagedMap.rowOf(
          walk.page, walk.keyOffset + walk.keyLength, walk.valueLength, valueFields)
        ahead = walk.next()
        (key, value)
      }
    }

  private[cowstate] def cursor(): Cursor = new Cursor

  private[cowstate] final class Cursor {
    private var index = 0
    private var at = 0
    var page: Array[Byte] = _
    var keyOffset = 0L
    var keyLength = 0
    var valueLength = 0
    var checksum = 0

    /** Throws Spark's error unless the entry is as it was put. */
    def verify(): Unit =
      checksums.verify(page, keyOffset, keyLength + valueLength, checksum)

    /** Go to the next entry; false at the end. */
    def next(): Boolean = {
      while (index < pages.length) {
        page = pages(index)
        while (at < used(index)) {
          val offset = Platform.BYTE_ARRAY_OFFSET + at
          keyLength = Platform.getInt(page, offset + KeyLength)
          valueLength = Platform.getInt(page, offset + ValueLength)
          at += headerBytes + keyLength + valueLength
          val died = Platform.getInt(page, offset + Died)
          if ((died == 0 || died > epoch) && Platform.getInt(page, offset + Modified) <= epoch) {
            keyOffset = offset + headerBytes
            checksum = Platform.getInt(page, offset + Checksum)
            return true
          }
        }
        index += 1
        at = 0
      }
      false
    }
  }
}
