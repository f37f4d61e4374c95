package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.Words
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{KeyIndex, OldRecords}
import org.apache.spark.unsafe.Platform

/** Number of removed old values, and number of old values still there. */
private[cowstate] final case class EvictedValues(removed: Long, left: Long)

/**
 * Removes old values of one side of a join, and the counts of their keys, for keys with one value.
 *
 * The join needs five calls for each key, and waits for memory in each call. Here many keys are
 * known at once, so the processor waits once for all keys. A key with several values is left to the
 * join: the join moves the last value of the key to the place of a removed value.
 *
 * @param counts store with the number of values of each key
 * @param values store with the values, by key and index from 0
 */
private[cowstate] final class LoneOldValues(
    counts: CowStateStore, values: CowStateStore, eviction: StoreEviction) {
  private val index = counts.shape.keyFields
  private val keyOf = counts.shape.keyOfLonger()
  private val keysOfValues = new KeptKeys(values.shape.keyFields)
  private val keys = new KeptKeys(counts.shape.keyFields)
  private val hashes = new Array[Int](OldRecords.Window)
  private val isLone = new Array[Boolean](OldRecords.Window)

  def remove(): EvictedValues = {
    var removed, left = 0L
    val deadBefore = values.map.deadBytes
    val old = values.oldRecords(eviction)
    var count = readKeys(old)
    while (count > 0) {
      removeCounts(count)
      removeValues(old, count)
      val lone = tellChangelogs(count)
      removed += lone
      left += count - lone
      count = readKeys(old)
    }
    // Pages without live records are gone. Live records move only now, because their addresses were
    // in use until here.
    values.removing((map, _) => map.compactIfDue(map.deadBytes - deadBefore))
    EvictedValues(removed, left)
  }

  private def readKeys(old: OldRecords): Int = old.next { (i, keyInMap) =>
    // A value at another index is not the only value of its key.
    isLone(i) = keyInMap.getLong(index) == 0
    keysOfValues.keep(i, keyInMap)
    keys.keep(i, keyOf(keyInMap))
    hashes(i) = KeyIndex.hashOf(keys(i))
  }

  private def removeCounts(count: Int): Unit = counts.removing { (map, undo) =>
    map.prefetch(hashes, count)
    var i = 0
    while (i < count) {
      isLone(i) = isLone(i) &&
        map.removeIf(keys(i), hashes(i), undo, counts.shape.valueFields)(_.getLong(0) == 1)
      i += 1
    }
    map.compactIfDue()
  }

  private def removeValues(old: OldRecords, count: Int): Unit = values.removing { (map, undo) =>
    var i = 0
    while (i < count) {
      if (isLone(i)) map.removeAt(old.address(i), old.hash(i), undo)
      i += 1
    }
  }

  /** Log the removed keys in both changelogs. Returns the number of removed values. */
  private def tellChangelogs(count: Int): Int = {
    var lone = 0
    var i = 0
    while (i < count) {
      if (isLone(i)) {
        counts.hasRemoved(keys(i))
        values.hasRemoved(keysOfValues(i))
        lone += 1
      }
      i += 1
    }
    lone
  }
}

/** Copies of keys, in byte arrays that are used again. */
private final class KeptKeys(fields: Int) {
  private val rows = Array.fill(OldRecords.Window)(new UnsafeRow(fields))
  private val bytes = Array.fill(OldRecords.Window)(Array.emptyByteArray)

  def apply(i: Int): UnsafeRow = rows(i)

  def keep(i: Int, key: UnsafeRow): Unit = {
    val length = key.getSizeInBytes
    if (bytes(i).length < length) bytes(i) = new Array[Byte](length)
    Words.copy(key, bytes(i), Platform.BYTE_ARRAY_OFFSET)
    rows(i).pointTo(bytes(i), length)
  }
}
