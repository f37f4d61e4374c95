package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * Records in pages of bytes, as the map sees them.
 *
 * A record (every part is a multiple of 8 bytes, as the rows of Spark are):
 *
 *    0  int   modified     epoch in which key and value got their content
 *    4  int   key length
 *    8  int   value length
 *   12  int   checksum     of key and value, see RowChecksums; 0 where there are none
 *   16  long  prefix next, long prefix previous     in maps with prefix scan only
 *       key bytes, value bytes
 *
 * An address is page number << 15 | offset / 8; page numbers begin at 1, so that addresses below
 * 1 << 15 mean something else. A page has at most `MaxPageBytes`, small enough not to be an object
 * of its own region in G1, unless one record needs more. The first pages are small, so that many
 * small stores stay small.
 *
 * That a record has died is noted in a bitmap beside its page, with a bit for each 16 bytes: no
 * record is shorter. So the page itself is not written to, which on a disk would cost as much as
 * its whole block. A view keeps the bitmaps of its moment; the first death afterwards in a page
 * goes to a copy.
 *
 * Pages are dropped, never written anew while a view may read them.
 */
private[cowstate] final class RecordPages(linksBytes: Int, memory: StateMemory, views: OpenViews) {
  import RecordPages._

  private val pages = new NumberedBlocks
  private var used = new Array[Int](8)
  private var dead = new Array[Int](8)
  private var born = new Array[Int](8)
  private var serials = new Array[Int](8)
  private var deaths = new Array[Array[Long]](8)
  /** The epoch in which the bitmap of each page was made. */
  private var deathsBorn = new Array[Int](8)
  private val freeNumbers = new util.ArrayDeque[Integer]
  /** Numbers of pages that are gone, while somebody may still have addresses in them. */
  private val droppedNumbers = new util.ArrayDeque[Integer]
  private val sparse = new util.ArrayDeque[Integer]
  private val changesOldPages = memory.pagesChangedInPlace == Int.MaxValue
  private var nextNumber = 1
  private var nextSerial = 0
  private var tail = 0
  /** How many bytes of the page at the tail records may take. */
  private var tailBytes = 0
  private var nextPageBytes = MinPageBytes
  private var allocated = 0L
  private var usedTotal = 0L
  private var deadTotal = 0L
  private var count = 0

  val headerBytes: Int = HeaderBytes + linksBytes

  def allocatedBytes: Long = allocated
  def deadBytes: Long = deadTotal
  /** Bytes of the records that are alive. */
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

  /** Whether a record may be changed where it is; else the change goes to a copy of it. */
  def isChangedInPlace(address: Long): Boolean =
    changesOldPages ||
      nextSerial - serials(pageOf(address)) < memory.pagesChangedInPlace

  /** Room for a record at the tail, in an epoch. Its lengths and links are set, and nothing else. */
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

  /** Undo the last `allocate`: the record is nowhere. */
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
    // Once only, when it becomes sparse. The tail still grows: addPage looks at it when it is full.
    if (!wasSparse && isSparse(number) && number != tail) sparse.add(number)
  }

  /** The bitmap of a page, which no open view has. */
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

  /** The number of a page that is dead by more than half, and not the one being filled; or 0. */
  def pollSparse(): Int = {
    while (!sparse.isEmpty) {
      val number = sparse.poll().intValue
      if (number != tail && pages.has(number) && isSparse(number)) return number
    }
    0
  }

  private def isSparse(number: Int): Boolean = dead(number) * 2L > used(number)

  /** Call `f` with the address of each live record of a page, from the one at a byte on. */
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

  /** Whether the record at an address has a key. */
  def hasKey(address: Long, key: UnsafeRow): Boolean = {
    val record = base(address)
    val at = offset(address)
    val length = key.getSizeInBytes
    Platform.getInt(record, at + KeyLength) == length &&
      ByteArrayMethods.arrayEquals(
        record, at + headerBytes, key.getBaseObject, key.getBaseOffset, length)
  }

  /** Drop a page that holds nothing that is needed, in an epoch. */
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

  /** Drop a page, in an epoch, if all of its records are dead and no other ones will come. */
  def dropIfDead(number: Int, epoch: Int): Unit =
    if (number != tail && pages.has(number) && dead(number) == used(number)) {
      drop(number, epoch)
    }

  /** Nobody has addresses any more of records that have died. */
  def reuseNumbers(): Unit = {
    freeNumbers.addAll(droppedNumbers)
    droppedNumbers.clear()
  }

  /** The numbers of pages that hold anything, ascending. */
  def numbers: Iterator[Int] = Iterator.range(1, nextNumber).filter(pages.has)

  /** All pages as they are now, with nothing to read in those that are not wanted. */
  def contents(isWanted: Int => Boolean = _ => true): Array[PageContents] = numbers.map { number =>
    val end = if (isWanted(number)) used(number) else 0
    new PageContents(pages(number), end, deaths(number))
  }.toArray

  /** How many bytes of a page are records. */
  def usedBytes(number: Int): Int = used(number)

  /** Tells a page from others that had its number before. */
  def serial(number: Int): Int = serials(number)

  def sizeOf(address: Long): Int =
    recordBytes(getInt(address, KeyLength), getInt(address, ValueLength))

  /** The record behind one in its page, dead or alive; 0 if there is none. */
  def after(address: Long): Long = {
    val size = sizeOf(address)
    val isLast = ((address & OffsetMask) << 3) + size >= used(pageOf(address))
    if (isLast) 0L else address + (size >>> 3)
  }

  /** For tests: whether a record begins at an address, dead or alive, or its page is gone. */
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

/** A page at one moment: where its records end, and which of them had died; null: none. */
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
  /** An address has so many bits, and is at least `MinAddress`. */
  val AddressBits: Int = PageBits + OffsetBits
  val MinAddress: Long = 1L << OffsetBits
  private val MinPageBytes = 4 << 10
  private val MaxPageBytes = StateMemory.FullBlockBytes.toInt
  /** Bytes of a page for each bit of its bitmap. */
  private val BytesOfBit = 16

  def pageOf(address: Long): Int = (address >>> OffsetBits).toInt

  private def wordsOf(page: Block): Int =
    Math.toIntExact((page.bytes / BytesOfBit + 63) / 64)

  /** Whether the record at an offset of a page has died by a bitmap. */
  def isDead(deaths: Array[Long], offset: Int): Boolean = deaths != null && {
    val bit = offset / BytesOfBit
    (deaths(bit >>> 6) >>> bit & 1) == 1
  }
}
