package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.{
  StoreEviction, StoresOfTask
}

/**
 * Hands on the rows of its child unchanged, and tells the task which rows the operator above will
 * evict from its stores.
 *
 * @param evictions  by the name of the store
 * @param checkpoint directory with the states of the query's operators
 * @param operator   id of the operator above
 */
private[cowstate] case class StateEvictionExec(
    evictions: Map[String, StoreEviction], checkpoint: String, operator: Long, child: SparkPlan)
  extends RowsOfChildExec {
  override lazy val metrics: Map[String, SQLMetric] = Map(
    "numOldRows" -> SQLMetrics.createMetric(
      sparkContext, "number of state rows that were found to be old"))

  override protected def doExecute(): RDD[InternalRow] =
    StateEvictionExec.informing(
      child.execute(), evictions, checkpoint, operator, longMetric("numOldRows"), None)

  override protected def withNewChildInternal(newChild: SparkPlan): StateEvictionExec =
    copy(child = newChild)
}

private[cowstate] object StateEvictionExec {
  /**
   * Return an RDD of the same rows, whose tasks note in StoresOfTask what the operator will evict.
   * A task does so before it reads the first row. `removedCount`: metric for rows removed by the
   * stores on behalf of the operator; None if the stores may not remove rows.
   *
   * The closure sent to the tasks holds only the arguments, not the calling plan.
   */
  def informing(
      rows: RDD[InternalRow],
      evictions: Map[String, StoreEviction],
      checkpoint: String,
      operator: Long,
      oldRowCount: SQLMetric,
      removedCount: Option[SQLMetric]): RDD[InternalRow] =
    rows.mapPartitionsInternal { ofPartition =>
      StoresOfTask.willEvict(checkpoint, operator, evictions, oldRowCount)
      removedCount.foreach(StoresOfTask.countsRemoved(checkpoint, operator, _))
      ofPartition
    }
}
