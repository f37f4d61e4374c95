package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.StateStoreAwareZipPartitionsRDD

/**
 * Hands on the rows of the join below, and does for it what StatePrefetchExec and StateEvictionExec
 * do for other operators: it prefetches for the rows of both inputs, and tells the task what the join
 * will evict. If the join puts nothing out of that, its stores get the metric by which it counts the
 * rows that it removes. So they can remove rows for it.
 *
 * It stands above, because Spark has to make a join anew that gets other children. Each time, Spark
 * serializes all of Hadoop's configuration, while the batch waits. So the join keeps its children, and
 * its RDD gets other inputs. Where another extension of the session has put a node around the join,
 * or gives it another RDD, the join runs as Spark planned it.
 *
 * @param left      what the join looks up for a row of its left input
 * @param right     the same of its right input
 * @param evictions by the name of the store
 */
private[cowstate] case class StateOfJoinExec(
    left: Seq[StateLookup],
    right: Seq[StateLookup],
    evictions: Map[String, StoreEviction],
    child: SparkPlan)
  extends RowsOfChildExec {
  private type JoinRDD = StateStoreAwareZipPartitionsRDD[InternalRow, InternalRow, InternalRow]

  override lazy val metrics: Map[String, SQLMetric] = Map(
    "numOldRows" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were found to be old"),
    "numPrefetchedRowsOfLeft" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were prefetched for the left input"),
    "numPrefetchedRowsOfRight" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were prefetched for the right input"))

  override protected def doExecute(): RDD[InternalRow] = (child, child.execute()) match {
    case (join: StreamingSymmetricHashJoinExec, joined: JoinRDD @unchecked) =>
      SparkInternals.changing[RDD[InternalRow]](joined)(informed(join, joined))
    case (_, rows) => rows
  }

  private def informed(join: StreamingSymmetricHashJoinExec, joined: JoinRDD): JoinRDD = {
    val info = join.getStateInfo
    def fetching(rows: RDD[InternalRow], lookups: Seq[StateLookup], input: SparkPlan,
        side: String) = {
      val fetchedRows = longMetric(s"numPrefetchedRowsOf$side")
      PrefetchingRows.of(
        rows, lookups, input.output, info.checkpointLocation, info.operatorId, fetchedRows)
    }
    new StateStoreAwareZipPartitionsRDD(
      sparkContext,
      joined.f,
      // It is opened before the join, which reads all of it before it evicts from either side.
      informing(join, fetching(joined.rdd1, left, join.left, "Left")),
      fetching(joined.rdd2, right, join.right, "Right"),
      info,
      join.stateStoreNames,
      Some(session.sessionState.streamingQueryManager.stateStoreCoordinator))
  }

  private def informing(
      join: StreamingSymmetricHashJoinExec, rows: RDD[InternalRow]): RDD[InternalRow] =
    if (evictions.isEmpty) rows
    else {
      val info = join.getStateInfo
      val isSilent = evictions.exists { case (store, eviction) => eviction.leavesTo(store) }
      StateEvictionExec.informing(
        rows,
        evictions,
        info.checkpointLocation,
        info.operatorId,
        longMetric("numOldRows"),
        Option.when(isSilent)(join.longMetric("numRemovedStateRows")))
    }

  override protected def withNewChildInternal(newChild: SparkPlan): StateOfJoinExec =
    copy(child = newChild)
}
