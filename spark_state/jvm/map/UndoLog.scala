package org.apache.spark.sql.execution.streaming.state.cowstate.map

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.{RowChecksums, Words}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{Block, StateMemory}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * Undo log of one version: the earlier value of each changed key, as bytes.
 *
 * An entry is: int key length, int value length (-1: the key was absent), key, value, int checksum
 * of key and value (see RowChecksums), and int length of the entry. The length at the end lets the
 * log be read from either end. A key may occur again after its removal; the first entry has the
 * value before the version.
 *
 * @param epoch first epoch of the version: a record modified since then is in the log already
 */
private[cowstate] final class UndoLog(val epoch: Int, memory: StateMemory) {
  import UndoLog._

  private val account = memory.account
  private var blocks = new Array[Block](4)
  private var ends = new Array[Int](4)
  private var count = 0
  /**
   * Hash table with open addressing. A slot is 0, or the place of a key's first entry: block + 1 <<
   * 32 | offset.
   */
  private var slots: Array[Long] = _
  private var indexed = 0
  private var indexedBlock = 0
  private var indexedTo = 0

  /** Note that a key was absent. */
  def logAbsent(key: UnsafeRow): Unit = {
    val length = key.getSizeInBytes
    val at = room(length, 0)
    val to = blocks(count - 1).base
    Platform.putInt(to, at, length)
    Platform.putInt(to, at + 4, Absent)
    Words.copy(key, to, at + 8)
    putEnd(to, at, FixedBytes + length, 0)
  }

  /** Note the earlier value of a key. The value lies behind the key in `base`. */
  def logOld(
      base: AnyRef, keyOffset: Long, keyLength: Int, valueLength: Int, checksum: Int): Unit = {
    val at = room(keyLength, valueLength)
    val to = blocks(count - 1).base
    val length = keyLength + valueLength
    Platform.putInt(to, at, keyLength)
    Platform.putInt(to, at + 4, valueLength)
    Words.copy(base, keyOffset, to, at + 8, length)
    putEnd(to, at, FixedBytes + length, checksum)
  }

  private def putEnd(to: AnyRef, at: Long, size: Int, checksum: Int): Unit = {
    Platform.putInt(to, at + size - 8, checksum)
    Platform.putInt(to, at + size - 4, size)
  }

  /** Bring `map` back to the state before this version. The memory limit does not apply. */
  def rollBack(map: CopyOnWritePagedMap): Unit = account.withoutLimit {
    val key = new UnsafeRow(0)
    val value = new UnsafeRow(0)
    for (index <- (count - 1) to 0 by -1) {
      val block = blocks(index)
      var end = ends(index)
      while (end > 0) {
        val start = end - Platform.getInt(block.base, block.start + end - 4)
        if (point(block, start, key, value)) map.put(key, value, checksumOf(value), null)
        else map.remove(key, null)
        end = start
      }
    }
  }

  /** Return the value in a key's first entry: None without an entry, null if the key was absent. */
  def valueBefore(key: UnsafeRow): Option[UnsafeRow] = {
    indexEntries()
    val position = slots(slotOf(key))
    if (position == 0) None
    else {
      val value = new UnsafeRow(0)
      val there = point(blockAt(position), position.toInt, new UnsafeRow(0), value)
      Some(if (there) value else null)
    }
  }

  /**
   * Call `f` with the key and value of each entry, in order; the value is null if the key was
   * absent. The rows point into the log, so they are valid only until the log is closed.
   */
  def foreach(f: (UnsafeRow, UnsafeRow) => Unit): Unit = {
    for (index <- 0 until count) {
      val block = blocks(index)
      var at = 0
      while (at < ends(index)) {
        val key = new UnsafeRow(0)
        val value = new UnsafeRow(0)
        f(key, if (point(block, at, key, value)) value else null)
        at += sizeAt(block, at)
      }
    }
  }

  /** Extend the hash table to the end of the log. The first call makes the table. */
  private def indexEntries(): Unit = {
    if (slots == null) slots = newSlots(MinSlots)
    val key = new UnsafeRow(0)
    val value = new UnsafeRow(0)
    while (indexedBlock < count) {
      val block = blocks(indexedBlock)
      while (indexedTo < ends(indexedBlock)) {
        if (indexed >= slots.length / 4 * 3) growIndex()
        point(block, indexedTo, key, value)
        val slot = slotOf(key)
        if (slots(slot) == 0) {
          slots(slot) = (indexedBlock + 1L) << 32 | indexedTo
          indexed += 1
        }
        indexedTo += sizeAt(block, indexedTo)
      }
      if (indexedBlock == count - 1) return
      indexedBlock += 1
      indexedTo = 0
    }
  }

  private def growIndex(): Unit = {
    val old = slots
    slots = newSlots(old.length * 2)
    val key = new UnsafeRow(0)
    val value = new UnsafeRow(0)
    old.foreach { position =>
      if (position != 0) {
        point(blockAt(position), position.toInt, key, value)
        slots(slotOf(key)) = position
      }
    }
    account.release(old.length * 8L)
  }

  private def newSlots(length: Int): Array[Long] = {
    account.acquire(length * 8L)
    new Array[Long](length)
  }

  /** Return the slot of a key's first entry, or the free slot for the key. */
  private def slotOf(key: UnsafeRow): Int = {
    var slot = KeyIndex.hashOf(key) & (slots.length - 1)
    while (slots(slot) != 0 && !isKeyAt(slots(slot), key)) slot = (slot + 1) & (slots.length - 1)
    slot
  }

  private def isKeyAt(position: Long, key: UnsafeRow): Boolean = {
    val block = blockAt(position)
    val at = block.start + position.toInt
    val length = key.getSizeInBytes
    Platform.getInt(block.base, at) == length &&
      ByteArrayMethods.arrayEquals(
        block.base, at + 8, key.getBaseObject, key.getBaseOffset, length)
  }

  private def blockAt(position: Long): Block = blocks((position >>> 32).toInt - 1)

  private def sizeAt(block: Block, start: Int): Int = {
    val at = block.start + start
    FixedBytes + Platform.getInt(block.base, at) + math.max(Platform.getInt(block.base, at + 4), 0)
  }

  /** Give the memory back. The log is not used afterwards. */
  def close(): Unit = {
    blocks.take(count).foreach(memory.free)
    if (slots != null) account.release(slots.length * 8L)
    blocks = null
    slots = null
  }

  /** Point the rows at an entry. Returns false if the key was absent. */
  private def point(block: Block, start: Int, key: UnsafeRow, value: UnsafeRow): Boolean = {
    val at = block.start + start
    val keyLength = Platform.getInt(block.base, at)
    val valueLength = Platform.getInt(block.base, at + 4)
    key.pointTo(block.base, at + 8, keyLength)
    if (valueLength != Absent) value.pointTo(block.base, at + 8 + keyLength, valueLength)
    valueLength != Absent
  }

  /** Make room for an entry in the last block. Returns the offset of the entry. */
  private def room(keyLength: Int, valueLength: Int): Long = {
    val size = Math.addExact(Math.addExact(FixedBytes, keyLength), valueLength)
    if (count == 0 || ends(count - 1).toLong + size > blocks(count - 1).bytes) addBlock(size)
    val at = ends(count - 1)
    ends(count - 1) += size
    blocks(count - 1).start + at
  }

  private def addBlock(minBytes: Int): Unit = {
    val grown =
      if (count == 0) MinBlockBytes
      else math.min(blocks(count - 1).bytes * 2, StateMemory.FullBlockBytes)
    val block = memory.allocate(math.max(minBytes, grown))
    if (count == blocks.length) {
      blocks = util.Arrays.copyOf(blocks, count * 2)
      ends = util.Arrays.copyOf(ends, count * 2)
    }
    blocks(count) = block
    ends(count) = 0
    count += 1
  }
}

object UndoLog {
  private val Absent = -1
  /** Two lengths before key and value, the checksum and one length behind. */
  private val FixedBytes = 16
  private val MinBlockBytes = 1L << 10
  private val MinSlots = 64

  /** Count a read of a value from a log, for the verification of checksums. */
  def read(key: UnsafeRow, value: UnsafeRow, checksums: RowChecksums): Unit = {
    val keyLength = key.getSizeInBytes
    checksums.read(
      value.getBaseObject, value.getBaseOffset - keyLength, keyLength + value.getSizeInBytes,
      checksumOf(value))
  }

  private def checksumOf(value: UnsafeRow): Int =
    Platform.getInt(value.getBaseObject, value.getBaseOffset + value.getSizeInBytes)
}
