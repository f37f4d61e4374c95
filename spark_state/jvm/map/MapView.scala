package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * The entries of a map at one moment: its pages, how far each was filled, and which of their records
 * had died. Nothing of the table is copied. With `old`, it shows only those entries.
 *
 * That is one record of each key that the map had, whatever the map does afterwards:
 *
 *   - What is put later lies behind what was filled, or in new pages: a record is changed in place
 *     only if it got its content after every open view.
 *   - What dies later dies in another bitmap.
 *   - Links between records do change, but a view walks pages, not links.
 *   - Compaction copies records to where new ones go.
 *   - A page that the map drops is still in the view's array; only its number is given out again.
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
  /** How many calls of `foreach` are running. */
  private var walks = 0

  /**
   * Let the map change in place what this view shares with it. Safe to call again, and while another
   * thread reads: `rows` throw from then on, and the map waits for the end of `foreach`. So nobody
   * reads what the map writes or unmaps.
   */
  def release(): Unit = map.synchronized {
    val isLast = MapView.this.synchronized {
      val isFirst = !released
      released = true
      isFirst && walks == 0
    }
    if (isLast) map.release(this)
  }

  /** Call `f` at each entry. Throws a CowStateException if the view is released before. */
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

  /** Rows of its own for each entry. Throws a CowStateException once the view is released. */
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
        val key = CopyOnWritePagedMap.rowOf(walk.base, walk.keyOffset, walk.keyLength, keyFields)
        val value = CopyOnWritePagedMap.rowOf(
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

    /** Throws Spark's error unless the entry is as it was put. */
    def verify(): Unit =
      checksums.verify(base, keyOffset, keyLength + valueLength, checksum)

    /** Go to the next entry; false at the end. */
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
