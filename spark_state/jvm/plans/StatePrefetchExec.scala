package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute, Expression, UnsafeProjection, UnsafeRow
}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.Words
import org.apache.spark.sql.execution.streaming.state.cowstate.map.KeyIndex
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.{
  PrefetchingStore, StoresOfTask
}
import org.apache.spark.unsafe.Platform

/**
 * Lookup in the state that an operator makes for each input row.
 *
 * @param key   key to look up
 * @param store name of the store, among the stores of the operator
 * @param only  None if the operator makes the lookup for every row. Otherwise the operator makes
 *              the lookup only for rows whose lookup in `only.store` had the result `only.isThere`
 */
private[cowstate] final case class StateLookup(
    key: Seq[Expression], store: String, only: Option[LookupResult] = None)

/**
 * Result of the lookup for a row in the store `store`: `isThere` is true if the store has the row's
 * key. The lookup in `store` must be made for all rows: its own `only` is None.
 */
private[cowstate] final case class LookupResult(store: String, isThere: Boolean)

/**
 * Hands on the rows of its child unchanged, and prefetches the state that the operator above will
 * look up for these rows. The operator above has a single store.
 *
 * The operator above looks up one key at a time, and each lookup waits for memory twice. This node
 * knows the keys of many rows, so the processor waits once for all keys.
 *
 * @param key        key that the operator above looks up for a row
 * @param checkpoint directory with the states of the query's operators
 * @param operator   id of the operator above
 */
private[cowstate] case class StatePrefetchExec(
    key: Seq[Expression], checkpoint: String, operator: Long, child: SparkPlan)
  extends RowsOfChildExec {
  override lazy val metrics: Map[String, SQLMetric] = Map(
    "numPrefetchedRows" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were prefetched"))

  override protected def doExecute(): RDD[InternalRow] = {
    val lookups = Seq(StateLookup(key, StateStoreId.DEFAULT_STORE_NAME))
    PrefetchingRows.of(
      child.execute(), lookups, child.output, checkpoint, operator, longMetric("numPrefetchedRows"))
  }

  override protected def withNewChildInternal(newChild: SparkPlan): StatePrefetchExec =
    copy(child = newChild)
}

/** Hashes of the keys of a window of rows. */
private[cowstate] final class KeysOfRows(keyOf: UnsafeProjection) {
  val hashes = new Array[Int](PrefetchingRows.WindowRows)

  def read(row: UnsafeRow, place: Int): Unit = hashes(place) = KeyIndex.hashOf(keyOf(row))
}

/**
 * Lookups in a store for the keys of a window of rows. `only`: if given, look up just the keys for
 * which an earlier lookup had the given result.
 */
private[cowstate] final class LookupsInStore(
    keys: KeysOfRows, store: PrefetchingStore, only: Option[(LookupsInStore, Boolean)]) {
  private val isThere = new Array[Boolean](PrefetchingRows.WindowRows)
  private lazy val hashesOfSome = new Array[Int](PrefetchingRows.WindowRows)

  /** Prefetch. Returns the number of records found. */
  def prefetch(count: Int): Int =
    if (only.isEmpty) store.prefetch(keys.hashes, count, isThere)
    else {
      val (earlier, wanted) = only.get
      var some = 0
      var i = 0
      while (i < count) {
        if (earlier.isThere(i) == wanted) {
          hashesOfSome(some) = keys.hashes(i)
          some += 1
        }
        i += 1
      }
      store.prefetch(hashesOfSome, some, null)
    }
}

/** Lookups of an operator for the rows of a window, in the stores that the operator has opened. */
private[cowstate] final class StoreLookups(
    val keys: Array[KeysOfRows], val inStores: Array[LookupsInStore])

private[cowstate] object StoreLookups {
  def of(
      lookups: Seq[StateLookup],
      columns: Seq[Attribute],
      checkpoint: String,
      operator: Long): StoreLookups = {
    val keysOf = mutable.LinkedHashMap.empty[Seq[Expression], KeysOfRows]
    val inStores = mutable.LinkedHashMap.empty[String, LookupsInStore]
    for {
      lookup <- lookups
      store <- StoresOfTask.of(checkpoint, operator, lookup.store)
      if lookup.only.forall(result => inStores.contains(result.store))
    } {
      val only = lookup.only.map(result => (inStores(result.store), result.isThere))
      val keys = keysOf.getOrElseUpdate(
        lookup.key, new KeysOfRows(UnsafeProjection.create(lookup.key, columns)))
      inStores(lookup.store) = new LookupsInStore(keys, store, only)
    }
    new StoreLookups(keysOf.values.toArray, inStores.values.toArray)
  }
}

/**
 * Reads up to 64 rows, prefetches their state, then hands the rows on. A row is valid until the
 * next row is requested, as everywhere in Spark.
 */
private[cowstate] final class PrefetchingRows(
    rows: Iterator[InternalRow], lookups: => StoreLookups, prefetchedRows: SQLMetric)
  extends Iterator[InternalRow] {
  import PrefetchingRows._

  /**
   * Lookups in the stores. Made when the first row is requested, because the operator above opens
   * its stores before the request.
   */
  private lazy val opened = lookups
  private lazy val isLookedUp = opened.inStores.nonEmpty
  private lazy val bytes = new Array[Byte](WindowBytes)
  private val window = Array.fill(WindowRows)(new UnsafeRow(0))
  private var count = 0
  private var index = 0

  override def hasNext: Boolean =
    if (!isLookedUp) rows.hasNext
    else {
      if (index == count) readWindow()
      index < count
    }

  override def next(): InternalRow =
    if (!hasNext) Iterator.empty.next()
    else if (!isLookedUp) rows.next()
    else {
      index += 1
      window(index - 1)
    }

  private def readWindow(): Unit = {
    index = 0
    count = 0
    var used = 0
    var hasRoom = true
    val keys = opened.keys
    while (hasRoom && rows.hasNext) {
      val row = rows.next().asInstanceOf[UnsafeRow]
      val length = row.getSizeInBytes
      var i = 0
      while (i < keys.length) {
        keys(i).read(row, count)
        i += 1
      }
      hasRoom = count < WindowRows - 1 && used + length <= WindowBytes
      // Do not copy the child's last row, because the row stays valid until the child is asked for
      // the next row.
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
    opened.inStores.foreach(prefetchedRows += _.prefetch(count))
  }

  private def point(base: AnyRef, offset: Long, row: UnsafeRow): Unit = {
    if (window(count).numFields != row.numFields) window(count) = new UnsafeRow(row.numFields)
    window(count).pointTo(base, offset, row.getSizeInBytes)
  }
}

private[cowstate] object PrefetchingRows {
  /**
   * Return an RDD of the same rows, with a prefetch of their lookups. The closure sent to the tasks
   * holds only the arguments, not the calling plan.
   */
  def of(
      rows: RDD[InternalRow],
      lookups: Seq[StateLookup],
      columns: Seq[Attribute],
      checkpoint: String,
      operator: Long,
      prefetchedRows: SQLMetric): RDD[InternalRow] =
    rows.mapPartitionsInternal(
      new PrefetchingRows(_, StoreLookups.of(lookups, columns, checkpoint, operator),
        prefetchedRows))

  /**
   * Rows in a window. Each step of a prefetch ends with a wait for its last read; shared by so many
   * rows, the wait costs little.
   */
  val WindowRows = 64
  /** Bytes of copied rows in a window: few enough to stay in the processor's cache. */
  private val WindowBytes = 16 << 10
}
