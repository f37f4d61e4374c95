package org.apache.spark.sql.execution.streaming.state.cowstate.bytes

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * Copies bytes in multiples of 8, the unit of Spark's rows. Most rows are short, and for a few
 * words a loop is faster than the virtual machine's copy.
 */
private[cowstate] object Words {
  private val ShortBytes = 128

  def copy(from: AnyRef, fromOffset: Long, to: AnyRef, toOffset: Long, length: Int): Unit =
    if (length > ShortBytes) Platform.copyMemory(from, fromOffset, to, toOffset, length)
    else {
      var at = 0
      while (at < length) {
        Platform.putLong(to, toOffset + at, Platform.getLong(from, fromOffset + at))
        at += 8
      }
    }

  def copy(row: UnsafeRow, to: AnyRef, toOffset: Long): Unit =
    copy(row.getBaseObject, row.getBaseOffset, to, toOffset, row.getSizeInBytes)

  /** Copy bytes into a new row. */
  def rowOf(base: AnyRef, offset: Long, length: Int, fields: Int): UnsafeRow = {
    val bytes = new Array[Byte](length)
    copy(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET, length)
    val row = new UnsafeRow(fields)
    row.pointTo(bytes, length)
    row
  }
}
