package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.unsafe.Platform

/** What an operator looks up for an input row: a key, in some of its stores. */
private[cowstate] final case class StateLookup(key: Seq[Expression], stores: Seq[String])

/**
 * Hands on the rows of its child as they are, and prefetches what the operator above will look up in
 * its stores for them.
 *
 * That operator looks up a key at a time, and each lookup waits for memory twice. Here the keys of
 * some rows are known, so the processor waits once for all of them.
 *
 * @param checkpoint where the states of the query's operators are
 * @param operator   the id of the operator above
 */
private[cowstate] case class StatePrefetchExec(
    lookups: Seq[StateLookup], checkpoint: String, operator: Long, child: SparkPlan)
  extends RowsOfChildExec {
  override lazy val metrics: Map[String, SQLMetric] = Map(
    "numPrefetchedRows" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were prefetched"))

  override protected def doExecute(): RDD[InternalRow] = {
    // Tasks get these, and not the whole plan.
    val prefetchedRows = longMetric("numPrefetchedRows")
    val (lookupsOfRow, columns, query, above) = (lookups, child.output, checkpoint, operator)
    child.execute().mapPartitionsInternal { rows =>
      val keysInStores = lookupsOfRow.map(lookup =>
        new KeysInStores(
          UnsafeProjection.create(lookup.key, columns),
          lookup.stores.flatMap(StoresOfTask.of(query, above, _))))
      new PrefetchingRows(rows, keysInStores, prefetchedRows)
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): StatePrefetchExec =
    copy(child = newChild)
}

/** The keys of a window of rows, and the stores where they will be looked up. */
private[cowstate] final class KeysInStores(
    keyOf: UnsafeProjection, opened: => Seq[PrefetchingStore]) {
  private lazy val stores = opened.toArray
  private val hashes = new Array[Int](PrefetchingRows.WindowRows)

  def isLookedUp: Boolean = stores.nonEmpty

  def read(row: UnsafeRow, place: Int): Unit = hashes(place) = keyOf(row).hashCode

  /** Returns how many records there are. */
  def prefetch(count: Int): Int = {
    var records = 0
    var i = 0
    while (i < stores.length) {
      records += stores(i).prefetch(hashes, count)
      i += 1
    }
    records
  }
}

/**
 * Reads up to 32 rows, prefetches their state, then hands them on. A row is valid until the next one
 * is asked for, as ever in Spark.
 */
private[cowstate] final class PrefetchingRows(
    rows: Iterator[InternalRow], keysInStores: Seq[KeysInStores], prefetchedRows: SQLMetric)
  extends Iterator[InternalRow] {
  import PrefetchingRows._

  /** The operator above opens its stores before it asks for rows. */
  private lazy val lookedUp = keysInStores.filter(_.isLookedUp).toArray
  private lazy val bytes = new Array[Byte](WindowBytes)
  private val window = Array.fill(WindowRows)(new UnsafeRow(0))
  private var count = 0
  private var index = 0

  override def hasNext: Boolean =
    if (lookedUp.isEmpty) rows.hasNext
    else {
      if (index == count) readWindow()
      index < count
    }

  override def next(): InternalRow =
    if (!hasNext) Iterator.empty.next()
    else if (lookedUp.isEmpty) rows.next()
    else {
      index += 1
      window(index - 1)
    }

  private def readWindow(): Unit = {
    index = 0
    count = 0
    var used = 0
    var hasRoom = true
    while (hasRoom && rows.hasNext) {
      val row = rows.next().asInstanceOf[UnsafeRow]
      val length = row.getSizeInBytes
      var i = 0
      while (i < lookedUp.length) {
        lookedUp(i).read(row, count)
        i += 1
      }
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
    lookedUp.foreach(keys => prefetchedRows += keys.prefetch(count))
  }

  private def point(base: AnyRef, offset: Long, row: UnsafeRow): Unit = {
    if (window(count).numFields != row.numFields) window(count) = new UnsafeRow(row.numFields)
    window(count).pointTo(base, offset, row.getSizeInBytes)
  }
}

private[cowstate] object PrefetchingRows {
  /** Enough for the processor to fetch as many at once as it can. */
  val WindowRows = 32
  /** What is copied stays in the processor's cache. */
  private val WindowBytes = 16 << 10
}
