package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.StateMemory

/**
 * Lists of the records whose keys have the same prefix, in no order. The map `heads` leads from a
 * prefix to the first record of the list.
 *
 * @param prefixOf returns the prefix of a key; the returned row is used at once
 */
private[cowstate] final class PrefixLinks(
    records: RecordPages, memory: StateMemory, prefixOf: UnsafeRow => UnsafeRow) {
  import RecordPages._

  val heads = new CopyOnWritePagedMap(memory, None)
  private val scratchKey = new UnsafeRow(0)
  private val headRow = {
    val row = new UnsafeRow(1)
    row.pointTo(new Array[Byte](16), 16)
    row
  }

  /** Return the first record of a prefix, 0 if there is none. */
  def head(prefix: UnsafeRow): Long = {
    val head = heads.get(prefix, 1)
    if (head == null) 0L else head.getLong(0)
  }

  private def setHead(prefix: UnsafeRow, address: Long): Unit = {
    headRow.setLong(0, address)
    heads.put(prefix, headRow, null)
  }

  /** Link the record of a new key. Without memory for a head, throws and changes nothing. */
  def link(address: Long, key: UnsafeRow): Unit = {
    val prefix = prefixOf(key)
    val first = head(prefix)
    setHead(prefix, address)
    records.putLong(address, PrefixNext, first)
    if (first != 0) records.putLong(first, PrefixPrevious, address)
  }

  def unlink(address: Long): Unit = {
    val next = records.getLong(address, PrefixNext)
    val previous = records.getLong(address, PrefixPrevious)
    if (next != 0) records.putLong(next, PrefixPrevious, previous)
    if (previous != 0) {
      records.putLong(previous, PrefixNext, next)
    } else {
      val prefix = prefixAt(address)
      if (next != 0) setHead(prefix, next) else heads.remove(prefix, null)
    }
  }

  /** Let record `by` take the place of record `old` in the list. */
  def replace(old: Long, by: Long): Unit = {
    val next = records.getLong(old, PrefixNext)
    val previous = records.getLong(old, PrefixPrevious)
    records.putLong(by, PrefixNext, next)
    records.putLong(by, PrefixPrevious, previous)
    if (next != 0) records.putLong(next, PrefixPrevious, by)
    if (previous != 0) records.putLong(previous, PrefixNext, by) else setHead(prefixAt(by), by)
  }

  private def prefixAt(address: Long): UnsafeRow = {
    scratchKey.pointTo(
      records.base(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength))
    prefixOf(scratchKey)
  }
}
