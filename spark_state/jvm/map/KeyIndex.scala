package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * Where the record of each key is: a hash table of addresses with incremental rehash.
 *
 * A table is lines of eight slots, as long as a line of the processor's cache, and that is what a
 * line of a large table is. A slot is a long:
 *
 *     0                                      empty
 *     1                                      a key was removed here
 *     29 bits of the hash << 35 | address    see RecordPages
 *
 * Keys that differ in these 29 bits are told apart without a look at their records. The lowest of
 * the bits are the key's line. If a line is full when a key comes, the key goes to the next line that
 * is not. So a search goes from line to line until one has an empty slot, and ends there: lines are
 * filled from the front, and a line that was full never gets an empty slot again. A removal leaves
 * a 1 there; in other lines the last slot takes its place.
 *
 * When the table is three quarters full, counting what was removed, another one is allocated, of
 * twice the size or, if much was removed, of the same. Then every search moves the keys of a line.
 * That reads no record, and a line's keys go to two lines of the larger table. Until all have
 * moved, a key is looked for in both.
 *
 * `find` and `findAddress` note the slot for the change that follows. Any other call makes it void.
 */
private[cowstate] final class KeyIndex(records: RecordPages, memory: StateMemory) {
  import KeyIndex._

  private var table = newTable(MinLines)
  /** Where keys move to, null if they do not move. */
  private var larger: Table = _
  /** How many lines of `table` have moved. */
  private var moved = 0L
  private var entries = 0
  private var slotTable: Table = _
  /** The offset of the slot in its table. */
  private var slot = 0L

  def size: Int = entries

  /** How much of a rehash is done, in percent; 100 when there is none. */
  def rehashPercent: Int = if (larger == null) 100 else (moved * 100 / table.lines).toInt

  /** The address of the record of a key, 0 if there is none. */
  def find(key: UnsafeRow, hash: Int): Long = {
    val tag = tagOf(hash)
    if (larger == null) {
      find(table, 0, tag, key)
    } else {
      moveLine()
      val address = find(table, moved, tag, key)
      if (address != 0 || larger == null) address else find(larger, 0, tag, key)
    }
  }

  /** Look in the lines of a table from `first` on. */
  private def find(in: Table, first: Long, tag: Long, key: UnsafeRow): Long = {
    var line = in.lineOf(tag)
    while (true) {
      var at = in.start + line * LineBytes
      val end = at + LineBytes
      while (at != end) {
        val held = Platform.getLong(in.base, at)
        if (held == Empty) return 0
        if ((held ^ tag) >>> AddressBits == 0 && held != Removed && line >= first) {
          val address = held & AddressMask
          if (records.hasKey(address, key)) {
            slotTable = in
            slot = at - in.start
            return address
          }
        }
        at += 8
      }
      line = in.after(line)
    }
    0
  }

  /** Note the slot with the address of a record, which there is. */
  def findAddress(address: Long, hash: Int): Unit = {
    val wanted = tagOf(hash) | address
    if (!findSlot(table, wanted) && (larger == null || !findSlot(larger, wanted))) {
      throw new AssertionError("a live record is in no slot")
    }
  }

  private def findSlot(in: Table, wanted: Long): Boolean = {
    val first = if (in eq table) moved else 0L
    var line = in.lineOf(wanted)
    while (true) {
      var at = in.start + line * LineBytes
      val end = at + LineBytes
      while (at != end) {
        val held = Platform.getLong(in.base, at)
        if (held == Empty) return false
        if (held == wanted && line >= first) {
          slotTable = in
          slot = at - in.start
          return true
        }
        at += 8
      }
      line = in.after(line)
    }
    false
  }

  /** Let the slot that was found have another record of its key. */
  def replaceFound(address: Long): Unit = {
    val at = slotTable.start + slot
    val held = Platform.getLong(slotTable.base, at)
    Platform.putLong(slotTable.base, at, (held & ~AddressMask) | address)
  }

  /** Remove what was found. */
  def removeFound(): Unit = {
    val base = slotTable.base
    val at = slotTable.start + slot
    val end = at - slot % LineBytes + LineBytes
    if (Platform.getLong(base, end - 8) != Empty) {
      Platform.putLong(base, at, Removed)
    } else {
      var last = at
      while (Platform.getLong(base, last + 8) != Empty) last += 8
      Platform.putLong(base, at, Platform.getLong(base, last))
      Platform.putLong(base, last, Empty)
      slotTable.filled -= 1
    }
    entries -= 1
  }

  /** Make room for one key more. Throws a CowStateException, and changes nothing, without room. */
  def prepareInsert(): Unit =
    if (larger != null) moveLine()
    else if (table.isFull) {
      larger = newTable(if (entries > table.mostFilled / 2) table.lines * 2 else table.lines)
    }

  /** Note the record of a key that has none, after `prepareInsert`. */
  def insert(hash: Int, address: Long): Unit = {
    put(if (larger == null) table else larger, tagOf(hash) | address)
    entries += 1
  }

  private def put(into: Table, held: Long): Unit = {
    var line = into.lineOf(held)
    while (true) {
      var at = into.start + line * LineBytes
      val end = at + LineBytes
      while (at != end) {
        val before = Platform.getLong(into.base, at)
        if (before == Empty || before == Removed) {
          Platform.putLong(into.base, at, held)
          if (before == Empty) into.filled += 1
          return
        }
        at += 8
      }
      line = into.after(line)
    }
  }

  private def moveLine(): Unit = {
    var at = table.start + moved * LineBytes
    val end = at + LineBytes
    while (at != end) {
      val held = Platform.getLong(table.base, at)
      if (held != Empty && held != Removed) put(larger, held)
      at += 8
    }
    moved += 1
    if (moved == table.lines) {
      memory.free(table.block)
      table = larger
      larger = null
      moved = 0
    }
  }

  /** Make room for so many entries, if memory permits. */
  def reserve(expected: Long): Unit = if (larger == null) {
    val lines = linesFor(expected)
    val bytes = lines * LineBytes
    val isGranted = bytes <= memory.largestBlock && memory.permits(bytes + LineBytes)
    if (lines > table.lines && isGranted) moveTo(lines)
  }

  /** Make the table smaller if it is four times as large as it has to be, or more. */
  def trim(): Unit = if (larger == null) {
    val lines = linesFor(entries)
    if (lines < table.lines / 2) moveTo(lines)
  }

  private def moveTo(lines: Long): Unit = memory.account.withoutLimit {
    larger = newTable(lines)
    while (larger != null) moveLine()
  }

  /**
   * Read the lines of keys into the processor's caches. No branch depends on what is read, so that
   * it does not wait for one line before it asks for the next.
   */
  def readLines(hashes: Array[Int], count: Int): Long = {
    var sum = readLines(table, hashes, count)
    if (larger != null) sum += readLines(larger, hashes, count)
    sum
  }

  private def readLines(in: Table, hashes: Array[Int], count: Int): Long = {
    val base = in.base
    val start = in.start
    val lastLine = in.lines - 1
    var sum = 0L
    var i = 0
    while (i < count) {
      val at = start + ((hashes(i) >>> 3) & lastLine) * LineBytes
      // Both ends: small tables may begin anywhere, so two lines of the cache may have a part.
      sum += Platform.getLong(base, at) + Platform.getLong(base, at + LineBytes - 8)
      i += 1
    }
    sum
  }

  /**
   * What the line of a key tells of it: the address of a record that is likely the key's, `Absent` if
   * no key has this hash, or 0. Nothing is noted.
   */
  def glance(hash: Int): Long = {
    val tag = tagOf(hash)
    val in = if (larger != null && table.lineOf(tag) < moved) larger else table
    var at = in.start + in.lineOf(tag) * LineBytes
    val end = at + LineBytes
    var held = Removed
    while (at != end) {
      held = Platform.getLong(in.base, at)
      if ((held ^ tag) >>> AddressBits == 0 && held != Removed && held != Empty) {
        return held & AddressMask
      }
      at += 8
    }
    // The last slot is empty, so a search would end in this line.
    if (held == Empty && larger == null) Absent else 0
  }

  private def newTable(lines: Long): Table = {
    if (lines * LineBytes > memory.largestBlock) {
      throw new CowStateException(
        s"one partition of a store has $entries keys, as many as it can. Nothing was changed. " +
          "Use more partitions")
    }
    new Table(memory.allocateZeros(lines * LineBytes), lines)
  }

  /** For tests: call `f` with the address of each entry and the 29 bits of its hash. */
  def foreach(f: (Long, Long) => Unit): Unit =
    for ((in, first) <- Seq((table, moved), (larger, 0L)) if in != null) {
      var counted = 0
      assert(in.start % LineBytes == 0, "lines of a table begin where none of the cache can")
      for (line <- 0L until in.lines) {
        val slots = (0 until SlotsOfLine).map(i =>
          Platform.getLong(in.base, in.start + line * LineBytes + i * 8))
        assert(slots.dropWhile(_ != Empty).forall(_ == Empty), "a line has an empty slot within")
        counted += slots.count(_ != Empty)
        if (line >= first) {
          slots.filter(s => s != Empty && s != Removed)
            .foreach(s => f(s & AddressMask, s >>> AddressBits))
        }
      }
      assert(counted == in.filled, s"${in.filled} slots are counted, $counted are filled")
    }

  /** For tests: the blocks of the tables. */
  def blocks: Seq[Block] = Seq(table, larger).filter(_ != null).map(_.block)
}

private[cowstate] object KeyIndex {
  val AddressBits: Int = RecordPages.AddressBits
  /** Less than any address, and not 0. */
  val Absent = 1L
  private val AddressMask = (1L << AddressBits) - 1
  private final val SlotsOfLine = 8
  private final val LineBytes = 64L
  private val MinLines = 16L
  private val Empty = 0L
  /** 2 to the 64th over the golden ratio: its multiples are spread evenly (D. Knuth, TAOCP 6.4). */
  private final val OddFactor = 0x9e3779b97f4a7c15L
  /** SplitMix64's (OOPSLA 2014). With one factor for all, keys in large steps had too few lines. */
  private final val LastFactor = 0xbf58476d1ce4e5b9L
  private val Removed = 1L

  /**
   * The hash of a key that all of a map's methods take: of its bytes, eight at a time. Each step can
   * be undone, so keys that differ in one word of eight bytes differ after it. A bit of a product
   * depends on all lower bits of its factors. So the upper half, which depends on most, is folded
   * into the lower half after each step, and taken at the end.
   */
  def hashOf(key: UnsafeRow): Int = {
    val base = key.getBaseObject
    val end = key.getBaseOffset + key.getSizeInBytes
    var at = key.getBaseOffset
    var hash = key.getSizeInBytes * OddFactor
    while (at < end) {
      hash = (hash ^ Platform.getLong(base, at)) * OddFactor
      hash ^= hash >>> 32
      at += 8
    }
    (hash * LastFactor >>> 32).toInt
  }

  /** 29 bits of a hash, in the place that they have in a slot. */
  private def tagOf(hash: Int): Long = (hash >>> 3).toLong << AddressBits

  /** The lines of a table that is at most three quarters full with so many entries. */
  private def linesFor(entries: Long): Long = {
    var lines = MinLines
    while (lines * SlotsOfLine / 4 * 3 < entries) lines *= 2
    lines
  }

  private final class Table(val block: Block, val lines: Long) {
    def base: AnyRef = block.base
    def start: Long = block.start
    /** How many slots are not empty. */
    var filled = 0L

    def lineOf(slot: Long): Long = (slot >>> AddressBits) & (lines - 1)
    def after(line: Long): Long = (line + 1) & (lines - 1)
    def mostFilled: Long = lines * SlotsOfLine / 4 * 3
    def isFull: Boolean = filled >= mostFilled
  }
}
