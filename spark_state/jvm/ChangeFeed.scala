package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.util.NextIterator

/** Changes as Spark reads a change feed: their kinds, keys, values and batches. */
private[cowstate] final class ChangeFeed(
    changes: Iterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)])
  extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    if (changes.hasNext) {
      changes.next()
    } else {
      finished = true
      null
    }

  override protected def close(): Unit = ()
}
