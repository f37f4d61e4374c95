package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{Block, StateMemory}
import org.apache.spark.unsafe.Platform

/**
 * Index from keys to addresses of records: a hash table with incremental rehash.
 *
 * A table consists of lines of eight slots. A line is as long as a line of the processor's cache.
 * In a large table, a line lies in exactly one cache line. A slot is a long:
 *
 *     0                                      empty
 *     1                                      a key was removed here
 *     29 bits of the hash << 35 | address    see RecordPages
 *
 * Keys that differ in the 29 bits are told apart without reading their records. The lowest of the
 * 29 bits choose the key's line. If the line is full, a new key goes to the next line with room. So
 * a search goes from line to line and ends at the first line with an empty slot. The search is
 * right because lines are filled from the front, and a full line never gets an empty slot again: a
 * removal from a full line leaves a 1. In any other line, the last used slot moves to the place of
 * the removed slot.
 *
 * When the table is three quarters full, counting removed slots, the index allocates a second
 * table: twice the size or, if many keys were removed, the same size. Then every search moves the
 * keys of one line. A move reads no record, and the keys of a line go to two lines of the larger
 * table. Until all keys have moved, a search looks in both tables.
 *
 * `find` and `findAddress` note the found slot for the change that follows. Any other call makes
 * the noted slot invalid.
 */
private[cowstate] final class KeyIndex(records: RecordPages, memory: StateMemory) {
  import KeyIndex._

  private var table = newTable(MinLines)
  /** Table to which keys move, null if no rehash is running. */
  private var larger: Table = _
  /** Number of lines of `table` that have moved. */
  private var moved = 0L
  private var entries = 0
  private var slotTable: Table = _
  /** Offset of the found slot in `slotTable`. */
  private var slot = 0L

  def size: Int = entries

  /** Percentage of a rehash that is done; 100 when no rehash is running. */
  def rehashPercent: Int = if (larger == null) 100 else (moved * 100 / table.lines).toInt

  /** Return the address of a key's record, 0 if the key is absent. */
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

  /** Search a table, but ignore all keys in lines before `first`. */
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

  /** Note the slot that holds an address. The address must be in the index. */
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

  /** Let the found slot lead to another record of the same key. */
  def replaceFound(address: Long): Unit = {
    val at = slotTable.start + slot
    val held = Platform.getLong(slotTable.base, at)
    Platform.putLong(slotTable.base, at, (held & ~AddressMask) | address)
  }

  /** Remove the key of the found slot. */
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

  /** Make room for one more key. Without memory, throws a CowStateException and changes nothing. */
  def prepareInsert(): Unit =
    if (larger != null) moveLine()
    else if (table.isFull) {
      larger = newTable(if (entries > table.mostFilled / 2) table.lines * 2 else table.lines)
    }

  /** Add the address of a new key's record. Call after `prepareInsert`. */
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

  /** Make room for `expected` entries, if memory permits. */
  def reserve(expected: Long): Unit = if (larger == null) {
    val lines = linesFor(expected)
    val bytes = lines * LineBytes
    val isGranted = bytes <= memory.largestBlock && memory.permits(bytes + LineBytes)
    if (lines > table.lines && isGranted) moveTo(lines)
  }

  /** Make the table smaller if it is at least four times as large as needed. */
  def trim(): Unit = if (larger == null) {
    val lines = linesFor(entries)
    if (lines < table.lines / 2) moveTo(lines)
  }

  private def moveTo(lines: Long): Unit = memory.account.withoutLimit {
    larger = newTable(lines)
    while (larger != null) moveLine()
  }

  /**
   * Read the lines of keys into the processor's caches. No branch depends on the bytes read, so the
   * processor requests the next line without waiting for the line before.
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
      // Read both ends: a small table may begin anywhere, so a line may span two cache lines.
      sum += Platform.getLong(base, at) + Platform.getLong(base, at + LineBytes - 8)
      i += 1
    }
    sum
  }

  /**
   * Look at a key's line only. Returns the address of the record that is likely the key's, `Absent`
   * if no key has the hash, or 0 if the line does not tell. Notes no slot.
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
    // The last slot of the line is empty, so a search would end in this line.
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

  /** Call `f`, for tests, with the address of each entry and the 29 bits of its hash. */
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

  /** Return the blocks of the tables, for tests. */
  def blocks: Seq[Block] = Seq(table, larger).filter(_ != null).map(_.block)
}

private[cowstate] object KeyIndex {
  val AddressBits: Int = RecordPages.AddressBits
  /** Result for an absent key: less than any address, and not 0. */
  val Absent = 1L
  private val AddressMask = (1L << AddressBits) - 1
  private final val SlotsOfLine = 8
  private final val LineBytes = 64L
  private val MinLines = 16L
  private val Empty = 0L
  /** 2 to the 64th divided by the golden ratio: multiples spread evenly (D. Knuth, TAOCP 6.4). */
  private final val OddFactor = 0x9e3779b97f4a7c15L
  /**
   * Factor of SplitMix64 (OOPSLA 2014). If the last factor were OddFactor, as in the steps before,
   * keys at large regular distances would fall into too few lines.
   */
  private final val LastFactor = 0xbf58476d1ce4e5b9L
  private val Removed = 1L

  /**
   * Hash the bytes of a key, eight at a time. All methods of the map take this hash. Each step can
   * be undone, so two keys that differ in one word of eight bytes differ after the step. A bit of a
   * product depends on all lower bits of the factors. So the upper half, with the most
   * dependencies, is folded into the lower half after each step, and is the result at the end.
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

  /** Return 29 bits of a hash, at their place in a slot. */
  private def tagOf(hash: Int): Long = (hash >>> 3).toLong << AddressBits

  /**
   * Return the number of lines that keeps a table with `entries` entries at most three quarters
   * full.
   */
  private def linesFor(entries: Long): Long = {
    var lines = MinLines
    while (lines * SlotsOfLine / 4 * 3 < entries) lines *= 2
    lines
  }

  private final class Table(val block: Block, val lines: Long) {
    def base: AnyRef = block.base
    def start: Long = block.start
    /** Number of slots that are not empty. */
    var filled = 0L

    def lineOf(slot: Long): Long = (slot >>> AddressBits) & (lines - 1)
    def after(line: Long): Long = (line + 1) & (lines - 1)
    def mostFilled: Long = lines * SlotsOfLine / 4 * 3
    def isFull: Boolean = filled >= mostFilled
  }
}
