package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * What one version changed: for each changed key its value before, as bytes.
 *
 * An entry is int key length, int value length (-1: the key was not there), key, value, int
 * checksum of the two (see RowChecksums), and its own length as int at the end, so that the log can
 * be read from either end. A key may occur again after it was removed; its first entry counts.
 *
 * @param epoch first epoch of the version: a record modified in it or later is in the log already
 */
final class UndoLog(val epoch: Int, account: MemoryAccount) {
  import UndoLog._

  private var blocks = new Array[Array[Byte]](4)
  private var ends = new Array[Int](4)
  private var count = 0
  private var held = 0L
  private var firstEntries: util.HashMap[UnsafeRow, UnsafeRow] = _
  private var indexedBlock = 0
  private var indexedTo = 0

  /** The key was not there. */
  def logAbsent(key: UnsafeRow): Unit = {
    val length = key.getSizeInBytes
    val at = room(length, 0)
    val block = blocks(count - 1)
    Platform.putInt(block, at, length)
    Platform.putInt(block, at + 4, Absent)
    key.writeToMemory(block, at + 8)
    putEnd(block, at, FixedBytes + length, 0)
  }

  /** The key had a value, which follows it in `base`. */
  def logOld(
      base: Array[Byte], keyOffset: Long, keyLength: Int, valueLength: Int, checksum: Int): Unit = {
    val at = room(keyLength, valueLength)
    val block = blocks(count - 1)
    val length = keyLength + valueLength
    Platform.putInt(block, at, keyLength)
    Platform.putInt(block, at + 4, valueLength)
    Platform.copyMemory(base, keyOffset, block, at + 8, length)
    putEnd(block, at, FixedBytes + length, checksum)
  }

  private def putEnd(block: Array[Byte], at: Long, size: Int, checksum: Int): Unit = {
    Platform.putInt(block, at + size - 8, checksum)
    Platform.putInt(block, at + size - 4, size)
  }

  /** Bring `map` back to what it was before this version. Memory for that is always granted. */
  def rollBack(map: CopyOnWritePagedMap): Unit = account.withoutLimit {
    val key = new UnsafeRow(0)
    val value = new UnsafeRow(0)
    for (index <- (count - 1) to 0 by -1) {
      val block = blocks(index)
      var end = ends(index)
      while (end > 0) {
        val start = end - Platform.getInt(block, Platform.BYTE_ARRAY_OFFSET + end - 4)
        if (point(block, start, key, value)) map.put(key, value, checksumOf(value), null)
        else map.remove(key, null)
        end = start
      }
    }
  }

  /** The first entry of a key: None if it has none, null for a key that was not there. */
  def valueBefore(key: UnsafeRow): Option[UnsafeRow] = {
    val found = firstValues()
    if (found.containsKey(key)) Some(found.get(key)) else None
  }

  /** For each key its first entry; null for a key that was not there. */
  def firstValues(): util.Map[UnsafeRow, UnsafeRow] = {
    if (firstEntries == null) firstEntries = new util.HashMap
    while (indexedBlock < count) {
      val block = blocks(indexedBlock)
      while (indexedTo < ends(indexedBlock)) {
        val key = new UnsafeRow(0)
        val value = new UnsafeRow(0)
        val old = if (point(block, indexedTo, key, value)) value else null
        if (!firstEntries.containsKey(key)) firstEntries.put(key, old)
        indexedTo += FixedBytes + key.getSizeInBytes + (if (old == null) 0 else old.getSizeInBytes)
      }
      if (indexedBlock == count - 1) return firstEntries
      indexedBlock += 1
      indexedTo = 0
    }
    firstEntries
  }

  /** Give the memory back; the log is not used afterwards. */
  def close(): Unit = {
    account.release(held)
    held = 0
    blocks = null
  }

  /** Point the rows at the entry; false if the key was not there. */
  private def point(block: Array[Byte], start: Int, key: UnsafeRow, value: UnsafeRow): Boolean = {
    val at = Platform.BYTE_ARRAY_OFFSET + start
    val keyLength = Platform.getInt(block, at)
    val valueLength = Platform.getInt(block, at + 4)
    key.pointTo(block, at + 8, keyLength)
    if (valueLength != Absent) value.pointTo(block, at + 8 + keyLength, valueLength)
    valueLength != Absent
  }

  /** The offset of room for an entry in the last block. */
  private def room(keyLength: Int, valueLength: Int): Long = {
    val size = Math.addExact(FixedBytes + keyLength, valueLength)
    if (count == 0 || ends(count - 1) + size > blocks(count - 1).length) addBlock(size)
    val at = ends(count - 1)
    ends(count - 1) += size
    Platform.BYTE_ARRAY_OFFSET + at
  }

  private def addBlock(minBytes: Int): Unit = {
    val grown =
      if (count == 0) MinBlockBytes else math.min(blocks(count - 1).length * 2, MaxBlockBytes)
    val bytes = math.max(minBytes, grown)
    account.acquire(bytes)
    held += bytes
    if (count == blocks.length) {
      blocks = util.Arrays.copyOf(blocks, count * 2)
      ends = util.Arrays.copyOf(ends, count * 2)
    }
    blocks(count) = new Array[Byte](bytes)
    ends(count) = 0
    count += 1
  }
}

object UndoLog {
  private val Absent = -1
  /** Two lengths in front, the checksum and one length behind. */
  private val FixedBytes = 16
  private val MinBlockBytes = 1 << 10
  private val MaxBlockBytes = (256 << 10) - 64

  /** A value that a log gave out for a key is read. */
  def read(key: UnsafeRow, value: UnsafeRow, checksums: RowChecksums): Unit = {
    val keyLength = key.getSizeInBytes
    checksums.read(
      blockOf(value), value.getBaseOffset - keyLength, keyLength + value.getSizeInBytes,
      checksumOf(value))
  }

  private def checksumOf(value: UnsafeRow): Int =
    Platform.getInt(blockOf(value), value.getBaseOffset + value.getSizeInBytes)

  private def blockOf(value: UnsafeRow): Array[Byte] = value.getBaseObject.asInstanceOf[Array[Byte]]
}
