package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.Words
import org.apache.spark.unsafe.Platform

/**
 * Entries of a map at one moment: the pages, how far each page was filled, and the bitmaps of dead
 * records. A view copies nothing of the table. If `old` is given, the view shows only the entries
 * that `old` finds old by their time.
 *
 * A view shows exactly one record of each key that the map had, whatever the map does later:
 *
 *   - A later record lies behind the filled part, or in a new page. The map changes a record in
 *     place only if the record was written after the newest open view was opened.
 *   - A later death is noted in another bitmap.
 *   - Links between records do change, but a view walks pages, not links.
 *   - Compaction copies records to the end, as new records.
 *   - A page dropped by the map stays in the view's array; only the page number is used again.
 */
private[cowstate] final class MapView(
    map: CopyOnWritePagedMap,
    pages: Array[PageContents],
    private[cowstate] val epoch: Int,
    headerBytes: Int,
    old: Option[OldRows] = None) {
  import RecordPages._

  private val checksums = map.checksums
  private var released = false
  /** Number of running calls of `foreach`. */
  private var walks = 0

  /**
   * Release the view, so that the map may change shared records in place. Safe to call again, and
   * while another thread reads: later reads of `rows` throw, and the map waits for the end of
   * `foreach`. So no thread reads memory that the map writes or unmaps.
   */
  def release(): Unit = map.synchronized {
    val isLast = MapView.this.synchronized {
      val isFirst = !released
      released = true
      isFirst && walks == 0
    }
    if (isLast) map.release(this)
  }

  /**
   * Call `f` with a cursor at each entry. Throws a CowStateException if the view was released
   * before.
   */
  def foreach(f: Cursor => Unit): Unit = {
    whileOpen(walks += 1)
    try {
      val walk = new Cursor
      while (walk.next()) f(walk)
    } finally {
      map.synchronized {
        val isLast = MapView.this.synchronized {
          walks -= 1
          released && walks == 0
        }
        if (isLast) map.release(this)
      }
    }
  }

  /**
   * Return copies of the entries, row by row. Throws a CowStateException once the view is released.
   */
  def rows(keyFields: Int, valueFields: Int): Iterator[(UnsafeRow, UnsafeRow)] =
    new Iterator[(UnsafeRow, UnsafeRow)] {
      private val walk = new Cursor
      private var ahead = whileOpen(walk.next())
      override def hasNext: Boolean = ahead
      override def next(): (UnsafeRow, UnsafeRow) = {
        if (!ahead) throw new NoSuchElementException("end of the state")
        whileOpen(copyAndGoOn())
      }

      private def copyAndGoOn(): (UnsafeRow, UnsafeRow) = {
        checksums.read(
          walk.base, walk.keyOffset, walk.keyLength + walk.valueLength, walk.checksum)
        val key = Words.rowOf(walk.base, walk.keyOffset, walk.keyLength, keyFields)
        val value = Words.rowOf(
          walk.base, walk.keyOffset + walk.keyLength, walk.valueLength, valueFields)
        ahead = walk.next()
        (key, value)
      }
    }

  private def whileOpen[T](read: => T): T = MapView.this.synchronized {
    if (released) throw new CowStateException("the rows of a state were read after its release")
    read
  }

  private[cowstate] final class Cursor {
    private var index = 0
    private var at = 0
    var base: AnyRef = _
    var keyOffset = 0L
    var keyLength = 0
    var valueLength = 0
    var checksum = 0

    /** Throws Spark's error unless the entry has the bytes that were put. */
    def verify(): Unit =
      checksums.verify(base, keyOffset, keyLength + valueLength, checksum)

    /** Go to the next entry. Returns false at the end. */
    def next(): Boolean = {
      while (index < pages.length) {
        val contents = pages(index)
        base = contents.page.base
        while (at < contents.end) {
          val from = at
          val offset = contents.page.start + from
          keyLength = Platform.getInt(base, offset + KeyLength)
          valueLength = Platform.getInt(base, offset + ValueLength)
          at += headerBytes + keyLength + valueLength
          keyOffset = offset + headerBytes
          if (!isDead(contents.deaths, from) && isWanted) {
            checksum = Platform.getInt(base, offset + Checksum)
            return true
          }
        }
        index += 1
        at = 0
      }
      false
    }

    private def isWanted: Boolean =
      old.isEmpty || old.get.has(base, keyOffset, keyLength, valueLength)
  }
}
