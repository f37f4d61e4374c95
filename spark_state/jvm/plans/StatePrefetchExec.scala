package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.unsafe.Platform

/**
 * Hands on the rows of its child as they are, and prefetches what the operator above will look up in
 * its store for their keys.
 *
 * That operator looks up a key at a time, and each lookup waits for memory twice. Here the keys of
 * some rows are known, so the processor waits once for all of them.
 *
 * @param checkpoint where the states of the query's operators are
 * @param operator   the id of the operator above, whose store `default` is looked into
 */
private[cowstate] case class StatePrefetchExec(
    keys: Seq[Expression], checkpoint: String, operator: Long, child: SparkPlan)
  extends RowsOfChildExec {
  override lazy val metrics: Map[String, SQLMetric] = Map(
    "numPrefetchedRows" -> SQLMetrics.createMetric(
      sparkContext, "number of rows whose state was prefetched"))

  override protected def doExecute(): RDD[InternalRow] = {
    // Tasks get these, and not the whole plan.
    val prefetchedRows = longMetric("numPrefetchedRows")
    val (keysOfTask, columns, query, above) = (keys, child.output, checkpoint, operator)
    child.execute().mapPartitionsInternal { rows =>
      val keyOf = UnsafeProjection.create(keysOfTask, columns)
      new PrefetchingRows(rows, keyOf, StoresOfTask.of(query, above), prefetchedRows)
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): StatePrefetchExec =
    copy(child = newChild)
}

/**
 * Reads up to 32 rows, prefetches their state, then hands them on. A row is valid until the next one
 * is asked for, as ever in Spark.
 */
private[cowstate] final class PrefetchingRows(
    rows: Iterator[InternalRow],
    keyOf: UnsafeProjection,
    opened: => Option[PrefetchingStore],
    prefetchedRows: SQLMetric)
  extends Iterator[InternalRow] {
  import PrefetchingRows._

  /** The operator above opens its store before it asks for rows. */
  private lazy val store = opened
  private lazy val bytes = new Array[Byte](WindowBytes)
  private val window = Array.fill(WindowRows)(new UnsafeRow(0))
  private val hashes = new Array[Int](WindowRows)
  private var count = 0
  private var index = 0

  override def hasNext: Boolean =
    if (store.isEmpty) rows.hasNext
    else {
      if (index == count) readWindow(store.get)
      index < count
    }

  override def next(): InternalRow =
    if (!hasNext) Iterator.empty.next()
    else if (store.isEmpty) rows.next()
    else {
      index += 1
      window(index - 1)
    }

  private def readWindow(store: PrefetchingStore): Unit = {
    index = 0
    count = 0
    var used = 0
    var hasRoom = true
    while (hasRoom && rows.hasNext) {
      val row = rows.next().asInstanceOf[UnsafeRow]
      val length = row.getSizeInBytes
      hashes(count) = keyOf(row).hashCode
      hasRoom = count < WindowRows - 1 && used + length <= WindowBytes
      // The child's own row stays as it is until the child is asked for another one.
      if (hasRoom) {
        val at = Platform.BYTE_ARRAY_OFFSET + used
        Words.copy(row, bytes, at)
        point(bytes, at, row)
      } else {
        point(row.getBaseObject, row.getBaseOffset, row)
      }
      used += length
      count += 1
    }
    prefetchedRows += store.prefetch(hashes, count)
  }

  private def point(base: AnyRef, offset: Long, row: UnsafeRow): Unit = {
    if (window(count).numFields != row.numFields) window(count) = new UnsafeRow(row.numFields)
    window(count).pointTo(base, offset, row.getSizeInBytes)
  }
}

private object PrefetchingRows {
  /** Enough for the processor to fetch as many at once as it can. */
  private val WindowRows = 32
  /** What is copied stays in the processor's cache. */
  private val WindowBytes = 16 << 10
}
