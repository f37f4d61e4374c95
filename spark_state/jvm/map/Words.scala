package org.apache.spark.sql.execution.streaming.state.cowstate

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
}
