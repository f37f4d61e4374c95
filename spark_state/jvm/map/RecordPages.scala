package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, NumberedBlocks, StateMemory
}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * Records of a map, in pages of bytes.
 *
 * A record (every part is a multiple of 8 bytes, as the rows of Spark are):
 *
 *    0  int   modified     epoch in which key and value got their content
 *    4  int   key length
 *    8  int   value length
 *   12  int   checksum     of key and value, see RowChecksums; 0 without checksums
 *   16  long  prefix next, long prefix previous     in maps with prefix scan only
 *       key bytes, value bytes
 *
 * An address is page number << 15 | offset / 8. Page numbers begin at 1, so values below 1 << 15
 * are free for other meanings. A page has at most `MaxPageBytes`, unless one record needs more. The
 * limit keeps a page from getting a region of its own in G1. The first pages are small, so that
 * many small stores stay small.
 *
 * A bitmap beside the page notes the dead records, with a bit for each 16 bytes: no record is
 * shorter. So a death does not write to the page, which on a disk would cost a whole block. A view
 * keeps the bitmaps of its moment: the first death in a page after opening a view goes to a copy of
 * the bitmap.
 *
 * If the map drops a page that an open view reads, the memory of the page stays unchanged until the
 * view is released.
 */
private[cowstate] final class RecordPages(linksBytes: Int, memory: StateMemory, views: OpenViews) {
  import RecordPages._

  private val pages = new NumberedBlocks
  private var used = new Array[Int](8)
  private var dead = new Array[Int](8)
  private var born = new Array[Int](8)
  private var serials = new Array[Int](8)
  private var deaths = new Array[Array[Long]](8)
  /** Epoch in which the bitmap of each page was made. */
  private var deathsBorn = new Array[Int](8)
  private val freeNumbers = new util.ArrayDeque[Integer]
  /** Numbers of dropped pages into which old addresses may still point. */
  private val droppedNumbers = new util.ArrayDeque[Integer]
  private val sparse = new util.ArrayDeque[Integer]
  private val changesOldPages = memory.pagesChangedInPlace == Int.MaxValue
  private var nextNumber = 1
  private var nextSerial = 0
  private var tail = 0
  /** Number of bytes of the tail page that records may take. */
  private var tailBytes = 0
  private var nextPageBytes = MinPageBytes
  private var allocated = 0L
  private var usedTotal = 0L
  private var deadTotal = 0L
  private var count = 0

  val headerBytes: Int = HeaderBytes + linksBytes

  def allocatedBytes: Long = allocated
  def deadBytes: Long = deadTotal
  /** Bytes of the live records. */
  def liveBytes: Long = usedTotal - deadTotal
  def pageCount: Int = count

  def base(address: Long): AnyRef = pages.base(pageOf(address))

  def offset(address: Long): Long =
    pages.start(pageOf(address)) + ((address & OffsetMask) << 3)

  def getLong(address: Long, field: Int): Long =
    Platform.getLong(base(address), offset(address) + field)

  def putLong(address: Long, field: Int, value: Long): Unit =
    Platform.putLong(base(address), offset(address) + field, value)

  def getInt(address: Long, field: Int): Int =
    Platform.getInt(base(address), offset(address) + field)

  def putInt(address: Long, field: Int, value: Int): Unit =
    Platform.putInt(base(address), offset(address) + field, value)

  /** True if a record may be changed in place. Otherwise the change goes to a copy. */
  def isChangedInPlace(address: Long): Boolean =
    changesOldPages ||
      nextSerial - serials(pageOf(address)) < memory.pagesChangedInPlace

  /**
   * Allocate a record at the tail, in an epoch. Sets the record's lengths and links, nothing else.
   */
  def allocate(keyLength: Int, valueLength: Int, epoch: Int): Long = {
    val size = recordBytes(keyLength, valueLength)
    if (tail == 0 || used(tail).toLong + size > tailBytes) addPage(size, epoch)
    val address = (tail.toLong << OffsetBits) | (used(tail) >>> 3)
    used(tail) += size
    usedTotal += size
    putInt(address, KeyLength, keyLength)
    putInt(address, ValueLength, valueLength)
    if (linksBytes > 0) {
      putLong(address, PrefixNext, 0)
      putLong(address, PrefixPrevious, 0)
    }
    address
  }

  /** Undo the last `allocate`. */
  def takeBack(address: Long): Unit = {
    val size = sizeOf(address)
    used(tail) -= size
    usedTotal -= size
    assert(address == ((tail.toLong << OffsetBits) | (used(tail) >>> 3)), "not the last record")
  }

  /** Mark a record as dead from `epoch` on. */
  def bury(address: Long, epoch: Int): Unit = {
    val number = pageOf(address)
    val size = sizeOf(address)
    val wasSparse = isSparse(number)
    val bit = (address & OffsetMask).toInt >>> 1
    deathsToWrite(number, epoch)(bit >>> 6) |= 1L << bit
    dead(number) += size
    deadTotal += size
    // Add the page once only, when it becomes sparse. The tail is still growing: addPage checks the
    // tail when it is full.
    if (!wasSparse && isSparse(number) && number != tail) sparse.add(number)
  }

  /**
   * Return the bitmap of a page, to note a death in `epoch`. If an open view has the bitmap, the
   * page gets a copy of the bitmap.
   */
  private def deathsToWrite(number: Int, epoch: Int): Array[Long] = {
    val before = deaths(number)
    if (before == null || deathsBorn(number) <= views.newest) {
      val words = wordsOf(pages(number))
      memory.account.grant(words * 8L)
      deaths(number) = if (before == null) new Array[Long](words) else before.clone()
      if (before != null) views.drop(before.length * 8L, deathsBorn(number), epoch)
      deathsBorn(number) = epoch
    }
    deaths(number)
  }

  /** Return the number of a page that is dead by more than half and is not the tail, or 0. */
  def pollSparse(): Int = {
    while (!sparse.isEmpty) {
      val number = sparse.poll().intValue
      if (number != tail && pages.has(number) && isSparse(number)) return number
    }
    0
  }

  private def isSparse(number: Int): Boolean = dead(number) * 2L > used(number)

  /** Call `f` with the address of each live record of a page, beginning at byte `from`. */
  def foreachLive(number: Int, from: Int = 0)(f: Long => Unit): Unit = {
    val end = used(number)
    var at = from
    while (at < end) {
      val address = (number.toLong << OffsetBits) | (at >>> 3)
      val size = sizeOf(address)
      if (!isDead(deaths(number), at)) f(address)
      at += size
    }
  }

  def isAlive(address: Long): Boolean = {
    val number = pageOf(address)
    pages.has(number) && !isDead(deaths(number), (address & OffsetMask).toInt << 3)
  }

  /** True if the record at an address has this key. */
  def hasKey(address: Long, key: UnsafeRow): Boolean = {
    val record = base(address)
    val at = offset(address)
    val length = key.getSizeInBytes
    Platform.getInt(record, at + KeyLength) == length &&
      ByteArrayMethods.arrayEquals(
        record, at + headerBytes, key.getBaseObject, key.getBaseOffset, length)
  }

  /** Drop, in an epoch, a page without any needed record. */
  def drop(number: Int, epoch: Int): Unit = {
    assert(number != tail)
    val page = pages(number)
    views.drop(page, memory, born(number), epoch)
    if (deaths(number) != null) {
      views.drop(deaths(number).length * 8L, deathsBorn(number), epoch)
    }
    pages.remove(number)
    deaths(number) = null
    allocated -= page.bytes
    deadTotal -= dead(number)
    usedTotal -= used(number)
    used(number) = 0
    dead(number) = 0
    count -= 1
    droppedNumbers.add(number)
  }

  /** Drop a page, in an epoch, if all of its records are dead and no record will follow. */
  def dropIfDead(number: Int, epoch: Int): Unit =
    if (number != tail && pages.has(number) && dead(number) == used(number)) {
      drop(number, epoch)
    }

  /**
   * Allow the numbers of dropped pages to be used again. Call only when no caller has an address of
   * a dead record any more.
   */
  def reuseNumbers(): Unit = {
    freeNumbers.addAll(droppedNumbers)
    droppedNumbers.clear()
  }

  /** Return the numbers of the existing pages, ascending. */
  def numbers: Iterator[Int] = Iterator.range(1, nextNumber).filter(pages.has)

  /** Return all pages in their present state. Pages that are not wanted appear empty. */
  def contents(isWanted: Int => Boolean = _ => true): Array[PageContents] = numbers.map { number =>
    val end = if (isWanted(number)) used(number) else 0
    new PageContents(pages(number), end, deaths(number))
  }.toArray

  /** Number of bytes of a page that records take. */
  def usedBytes(number: Int): Int = used(number)

  /**
   * Serial number of the present page with this number. Page numbers are used again, serial numbers
   * are not.
   */
  def serial(number: Int): Int = serials(number)

  def sizeOf(address: Long): Int =
    recordBytes(getInt(address, KeyLength), getInt(address, ValueLength))

  /**
   * Return the record behind a record in the same page, dead or alive; 0 at the end of the page.
   */
  def after(address: Long): Long = {
    val size = sizeOf(address)
    val isLast = ((address & OffsetMask) << 3) + size >= used(pageOf(address))
    if (isLast) 0L else address + (size >>> 3)
  }

  /**
   * True if a record, dead or alive, begins at an address. Also true if the page of the address was
   * dropped. For tests.
   */
  def mayBegin(address: Long): Boolean = {
    val number = pageOf(address)
    var at = number.toLong << OffsetBits
    if (pages.has(number)) while (at != 0 && at < address) at = after(at)
    !pages.has(number) || at == address
  }

  private def recordBytes(keyLength: Int, valueLength: Int): Int = {
    assert((keyLength & 7) == 0 && (valueLength & 7) == 0, s"$keyLength, $valueLength")
    Math.addExact(Math.addExact(headerBytes, keyLength), valueLength)
  }

  private def addPage(minBytes: Int, epoch: Int): Unit = {
    val wanted = math.max(minBytes, nextPageBytes)
    val page = memory.allocate(wanted)
    nextPageBytes = math.min(nextPageBytes * 2, MaxPageBytes)
    val number = if (freeNumbers.isEmpty) newNumber() else freeNumbers.poll().intValue
    pages.add(number, page)
    born(number) = epoch
    nextSerial += 1
    serials(number) = nextSerial
    if (tail != 0 && isSparse(tail)) sparse.add(tail)
    tail = number
    tailBytes = math.max(wanted, math.min(page.bytes, MaxPageBytes).toInt)
    allocated += page.bytes
    count += 1
  }

  private def newNumber(): Int = {
    val number = nextNumber
    if (number > MaxPages) throw CowStateException.ofManyPages(memory.account.owner, MaxPages)
    nextNumber += 1
    if (number == used.length) {
      used = util.Arrays.copyOf(used, number * 2)
      dead = util.Arrays.copyOf(dead, number * 2)
      born = util.Arrays.copyOf(born, number * 2)
      serials = util.Arrays.copyOf(serials, number * 2)
      deaths = util.Arrays.copyOf(deaths, number * 2)
      deathsBorn = util.Arrays.copyOf(deathsBorn, number * 2)
    }
    number
  }
}

/**
 * A page at one moment: the end of its records, and the bitmap of the dead records (null: none
 * died).
 */
private[cowstate] final class PageContents(
    val page: Block, val end: Int, val deaths: Array[Long])

private[cowstate] object RecordPages {
  val Modified = 0
  val KeyLength = 4
  val ValueLength = 8
  val Checksum = 12
  val HeaderBytes = 16
  val PrefixNext = 16
  val PrefixPrevious = 24
  val PrefixLinksBytes = 16

  val OffsetBits = 15
  private val OffsetMask = (1L << OffsetBits) - 1
  private val PageBits = 20
  private val MaxPages = (1 << PageBits) - 1
  /** Number of bits of an address. An address is at least `MinAddress`. */
  val AddressBits: Int = PageBits + OffsetBits
  val MinAddress: Long = 1L << OffsetBits
  private val MinPageBytes = 4 << 10
  private val MaxPageBytes = StateMemory.FullBlockBytes.toInt
  /** Bytes of a page for each bit of its bitmap. */
  private val BytesOfBit = 16

  def pageOf(address: Long): Int = (address >>> OffsetBits).toInt

  private def wordsOf(page: Block): Int =
    Math.toIntExact((page.bytes / BytesOfBit + 63) / 64)

  /** True if a bitmap marks the record at an offset of a page as dead. */
  def isDead(deaths: Array[Long], offset: Int): Boolean = deaths != null && {
    val bit = offset / BytesOfBit
    (deaths(bit >>> 6) >>> bit & 1) == 1
  }
}
