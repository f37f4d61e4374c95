package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import scala.util.control.NonFatal

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StoreShape
import org.apache.spark.util.SerializableConfiguration

/**
 * Tasks of a rescale. The tasks check:
 *
 *   - Spark's hash puts each row into the old partition that has the row. If not, the query was
 *     partitioned in another way, and the new partition of the rows is not known.
 *   - Each old partition reports to each new partition the number of rows that it sends there, and
 *     the sum of the rows' hashes. A new partition needs the reports of all old partitions. The
 *     file of the new partition is read back, and must have the reported number of rows and the
 *     reported sum.
 *   - Spark's hash puts each row of the file into the new partition of the file.
 */
private[cowstate] final class RescalingTasks(
    order: RescaleOrder,
    shapes: Seq[StoreShape],
    storeConf: StateStoreConf,
    hadoopConf: Broadcast[SerializableConfiguration]) extends Serializable {

  /**
   * Return the rows that an old partition of a store sends, each row with the number of its new
   * partition, counted over all stores.
   */
  def sent(store: Int, partition: Int): Iterator[Product2[Int, UnsafeRow]] = {
    val old = placeOf(store, partition)
    val oldPartitionOf = old.partitionOf(order.from)
    val newPartitionOf = old.partitionOf(order.to)
    val targetOf = (key: UnsafeRow) => {
      old.check(oldPartitionOf(key))
      newPartitionOf(key)
    }
    val rows =
      new SentRows(old.url, store * order.to, order.to, targetOf, () => old.openRows())
    TaskContext.get().addTaskCompletionListener[Unit](_ => rows.close())
    rows
  }

  /** Write the rows that have arrived for a new partition of a store. */
  def written(store: Int, partition: Int, rows: Iterator[UnsafeRow]): RescaledPartition = {
    val place = placeOf(store, partition)
    val outcome =
      RescaledPartition(order.stores(store).operator, order.stores(store).store, partition)
    try {
      val (name, tally) = place.write(new ArrivedRows(rows, shapes(store), order.from))
      place.verify(name, tally)
      outcome.copy(rows = tally.rows, unique = name.unique)
    } catch {
      // Spark computes the lost rows again. The files are not at fault.
      case e: FetchFailedException => throw e
      case e: TaskKilledException => throw e
      case NonFatal(e) => outcome.copy(error = Some(StoreJob.reasonOf(place.url, e)))
    }
  }

  private def placeOf(store: Int, partition: Int): RescaledPlace =
    new RescaledPlace(
      order, order.stores(store), shapes(store), partition, storeConf, hadoopConf.value.value)
}
