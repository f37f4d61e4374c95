package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.StateStoreAwareZipPartitionsRDD
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.StoreEviction

/**
 * Hands on the rows of the join below, and does for the join the work of StatePrefetchExec and
 * StateEvictionExec: prefetches for the rows of both inputs, and tells the task which rows the join
 * will evict. Some joins put out no evicted rows, for example inner joins. The stores of such a
 * join may remove old rows on behalf of the join. The stores count the removed rows in a metric of
 * the join.
 *
 * The node stands above the join. A node below would be a new child of the join. To give a join a
 * new child, Spark copies the join, and each copy serializes all of Hadoop's configuration while
 * the batch waits. So the join keeps its children, and this node replaces the inputs of the join's
 * RDD. If another extension of the session puts a node between this node and the join, or gives the
 * join another RDD, the join runs as Spark planned it.
 *
 * @param left      lookups of the join for a row of the left input
 * @param right     lookups of the join for a row of the right input
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
      // The left input opens before the join runs. The join reads all of the left input before
      // evicting from either side.
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
