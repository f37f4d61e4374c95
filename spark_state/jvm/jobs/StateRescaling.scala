package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.{JsonMethods, Serialization}

import org.apache.spark.{PartitionIdPassthrough, TaskContext}
import org.apache.spark.rdd.ShuffledRDD
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.UnsafeRowSerializer
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, StoreShape}
import org.apache.spark.util.SerializableConfiguration

/** Store of an operator. `uniques`: ids of the states by partition, in checkpoint format 2. */
final case class StoreToRescale(
    operator: Long,
    operatorName: String,
    store: String,
    prefixColumns: Int,
    uniques: Option[Seq[String]])

/**
 * Order of `cowstate rescale`: give the state of `version` another number of partitions, `to`
 * instead of `from`.
 *
 * @param attempt  id of the rescale, 16 hexadecimal digits, in the names of all new files
 * @param settings settings of the query, as in the offset log
 */
final case class RescaleOrder(
    checkpoint: String,
    attempt: String,
    version: Long,
    from: Int,
    to: Int,
    settings: Map[String, String],
    stores: Seq[StoreToRescale])

/**
 * Columns of the key that decide upon the partition of a row. Empty if the store has one partition
 * only. `error`: reason why the columns are not known.
 */
final case class PartitioningOfStore(
    operator: Long, store: String, columns: Seq[String], error: Option[String] = None)

/** New partition of a store, or the reason why the new partition could not be made. */
final case class RescaledPartition(
    operator: Long,
    store: String,
    partition: Int,
    rows: Long = 0,
    unique: String = "",
    error: Option[String] = None) extends StoreOutcome

/**
 * Gives the state of a checkpoint another number of partitions, in a Spark job.
 *
 *   a task for each store and old partition   reads the files of the partition, see FoldedRows, and
 *                                             sends each row to the new partition of the row
 *   a task for each store and new partition   writes the arriving rows to a file, and then reads
 *                                             and checks the file
 *
 * The rows go through Spark's shuffle, so a task holds a few buffers only. RescalingTasks lists the
 * checks on the way.
 *
 * The new files lie beside the files of the old partitions. No query reads the new files, see
 * StateFileName, until the offset log says that the query has the new number of partitions.
 */
object StateRescaling {
  private implicit val formats: Formats = DefaultFormats

  /** Return the partitioning of each store, as JSON. */
  def partitionings(session: SparkSession, orderJson: String): String = {
    val order = orderIn(orderJson)
    val conf = CheckpointStores.hadoopConfOf(session)
    Serialization.write(order.stores.map { store =>
      val none = PartitioningOfStore(store.operator, store.store, Nil)
      try {
        val (key, _) =
          CheckpointStores.schemaOf(order.checkpoint, store.operator, store.store, conf)
        val partitioning =
          StorePartitioning.of(store.operatorName, store.store, key, order.settings)
        none.copy(columns = partitioning.columns.fieldNames.toSeq)
      } catch { case e: CowStateException => none.copy(error = Some(e.getMessage)) }
    })
  }

  /** Begin the job. Throws CowStateException if a store has no schema, or no usable schema. */
  def start(session: SparkSession, orderJson: String): StoreJob[RescaledPartition] = {
    val order = orderIn(orderJson)
    val tasks = tasksOf(session, order)
    val sources =
      for (store <- order.stores.indices; partition <- 0 until order.from) yield (store, partition)
    val sent = session.sparkContext.parallelize(sources, sources.size).mapPartitions {
      _.flatMap { case (store, partition) => tasks.sent(store, partition) }
    }
    val targets = order.stores.size * order.to
    val arrived =
      new ShuffledRDD[Int, UnsafeRow, UnsafeRow](sent, new PartitionIdPassthrough(targets))
        .setSerializer(new UnsafeRowSerializer(SentRow.Fields))
    StoreJob.submit(arrived, sources.size + targets) { rows =>
      val target = TaskContext.getPartitionId()
      Seq(tasks.written(target / order.to, target % order.to, rows.map(_._2)))
    }
  }

  private def tasksOf(session: SparkSession, order: RescaleOrder): RescalingTasks = {
    val conf = CheckpointStores.hadoopConfOf(session)
    val shapes = order.stores.map { store =>
      val (key, value) =
        CheckpointStores.schemaOf(order.checkpoint, store.operator, store.store, conf)
      StoreShape(key, value, store.prefixColumns)
    }
    new RescalingTasks(
      order, shapes, CheckpointStores.storeConfOf(session, order.settings),
      session.sparkContext.broadcast(new SerializableConfiguration(conf)))
  }

  /** Delete the files of this rescale, also unfinished files of tasks. */
  def discard(session: SparkSession, orderJson: String): Unit = {
    val order = orderIn(orderJson)
    val conf = CheckpointStores.hadoopConfOf(session)
    val storeConf = CheckpointStores.storeConfOf(session, order.settings)
    for (store <- order.stores; partition <- 0 until order.to) {
      val directory =
        RescaledPlace.directoryOf(RescaledPlace.idOf(order, store, partition), storeConf, conf)
      directory.delete(directory.list().filter(_.contains(order.attempt)))
    }
  }

  private def orderIn(json: String): RescaleOrder = JsonMethods.parse(json).extract[RescaleOrder]
}
