package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.unsafe.Platform

/**
 * Records in pages of bytes, as the map sees them.
 *
 * A record (every part is a multiple of 8 bytes, as the rows of Spark are):
 *
 *    0  long  next         address of the next record of the bucket, 0 at the end
 *    8  int   hash         of the key
 *   12  int   modified     epoch in which key and value got their content
 *   16  int   died         epoch in which the record was removed or replaced, 0 while it is alive
 *   20  int   key length
 *   24  int   value length
 *   28  int   checksum     of key and value, see RowChecksums; 0 where there are none
 *   32  long  prefix next, long prefix previous     in maps with prefix scan only
 *       key bytes, value bytes
 *
 * An address is page number << 18 | offset / 8; page numbers begin at 1, so no address is 0. A page
 * has at most `MaxPageBytes`, small enough not to be an object of its own region in G1, unless one
 * record needs more. The first pages are small, so that many small stores stay small.
 *
 * Pages are dropped, never written anew: whoever holds the array of a dropped page (a view) goes on
 * reading it.
 */
final class RecordPages(linksBytes: Int, account: MemoryAccount) {
  import RecordPages._

  private var pages = new Array[Array[Byte]](8)
  private var used = new Array[Int](8)
  private var dead = new Array[Int](8)
  private var born = new Array[Int](8)
  private val freeNumbers = new util.ArrayDeque[Integer]
  private val sparse = new util.ArrayDeque[Integer]
  private var nextNumber = 1
  private var tail = 0
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

  def page(address: Long): Array[Byte] = pages((address >>> OffsetBits).toInt)

  def offset(address: Long): Long = Platform.BYTE_ARRAY_OFFSET + ((address & OffsetMask) << 3)

  def getLong(address: Long, field: Int): Long =
    Platform.getLong(page(address), offset(address) + field)

  def putLong(address: Long, field: Int, value: Long): Unit =
    Platform.putLong(page(address), offset(address) + field, value)

  def getInt(address: Long, field: Int): Int =
    Platform.getInt(page(address), offset(address) + field)

  def putInt(address: Long, field: Int, value: Int): Unit =
    Platform.putInt(page(address), offset(address) + field, value)

  /**
   * Room for a record of these lengths at the tail, in an epoch; its bytes are zero except for the
   * lengths.
   */
  def allocate(keyLength: Int, valueLength: Int, epoch: Int): Long = {
    val size = recordBytes(keyLength, valueLength)
    if (tail == 0 || used(tail) + size > pages(tail).length) addPage(size, epoch)
    val address = (tail.toLong << OffsetBits) | (used(tail) >>> 3)
    used(tail) += size
    usedTotal += size
    putInt(address, KeyLength, keyLength)
    putInt(address, ValueLength, valueLength)
    address
  }

  /** Mark a record as dead from `epoch` on. */
  def bury(address: Long, epoch: Int): Unit = {
    putInt(address, Died, epoch)
    val number = (address >>> OffsetBits).toInt
    val size = sizeOf(address)
    val wasSparse = isSparse(number)
    dead(number) += size
    deadTotal += size
    // Once only, when it becomes sparse. The tail still grows: addPage looks at it when it is full.
    if (!wasSparse && isSparse(number) && number != tail) sparse.add(number)
  }

  /** The number of a page that is dead by more than half, and not the one being filled; or 0. */
  def pollSparse(): Int = {
    while (!sparse.isEmpty) {
      val number = sparse.poll().intValue
      if (number != tail && pages(number) != null && isSparse(number)) return number
    }
    0
  }

  private def isSparse(number: Int): Boolean = dead(number) * 2L > used(number)

  /** Call `f` with the address of each live record of a page. */
  def foreachLive(number: Int)(f: Long => Unit): Unit = {
    val end = used(number)
    var at = 0
    while (at < end) {
      val address = (number.toLong << OffsetBits) | (at >>> 3)
      val size = sizeOf(address)
      if (getInt(address, Died) == 0) f(address)
      at += size
    }
  }

  /** The epoch in which a page was allocated. */
  def bornIn(number: Int): Int = born(number)

  /** Drop a page that holds nothing that is needed; returns the bytes that this frees. */
  def drop(number: Int): Int = {
    assert(number != tail)
    val bytes = pages(number).length
    pages(number) = null
    allocated -= bytes
    deadTotal -= dead(number)
    usedTotal -= used(number)
    used(number) = 0
    dead(number) = 0
    count -= 1
    freeNumbers.add(number)
    bytes
  }

  /** The numbers of pages that hold anything, ascending. */
  def numbers: Iterator[Int] = Iterator.range(1, nextNumber).filter(pages(_) != null)

  /** All pages as they are now, with the bytes used of each. */
  def contents: (Array[Array[Byte]], Array[Int]) = {
    val list = numbers.toArray
    (list.map(pages), list.map(used))
  }

  def sizeOf(address: Long): Int =
    recordBytes(getInt(address, KeyLength), getInt(address, ValueLength))

  private def recordBytes(keyLength: Int, valueLength: Int): Int = {
    assert((keyLength & 7) == 0 && (valueLength & 7) == 0, s"$keyLength, $valueLength")
    Math.addExact(Math.addExact(headerBytes, keyLength), valueLength)
  }

  private def addPage(minBytes: Int, epoch: Int): Unit = {
    val bytes = math.max(minBytes, nextPageBytes)
    account.acquire(bytes)
    nextPageBytes = math.min(nextPageBytes * 2, MaxPageBytes)
    val number = if (freeNumbers.isEmpty) newNumber() else freeNumbers.poll().intValue
    pages(number) = new Array[Byte](bytes)
    born(number) = epoch
    if (tail != 0 && isSparse(tail)) sparse.add(tail)
    tail = number
    allocated += bytes
    count += 1
  }

  private def newNumber(): Int = {
    val number = nextNumber
    nextNumber += 1
    if (number == pages.length) {
      pages = util.Arrays.copyOf(pages, number * 2)
      used = util.Arrays.copyOf(used, number * 2)
      dead = util.Arrays.copyOf(dead, number * 2)
      born = util.Arrays.copyOf(born, number * 2)
    }
    number
  }
}

object RecordPages {
  val Next = 0
  val Hash = 8
  val Modified = 12
  val Died = 16
  val KeyLength = 20
  val ValueLength = 24
  val Checksum = 28
  val HeaderBytes = 32
  val PrefixNext = 32
  val PrefixPrevious = 40
  val PrefixLinksBytes = 16

  private[cowstate] val OffsetBits = 18
  private val OffsetMask = (1L << OffsetBits) - 1
  private val MinPageBytes = 4 << 10
  /** Four of them, with their object headers, fit into a region of 1 MiB. */
  private val MaxPageBytes = (256 << 10) - 64
}
