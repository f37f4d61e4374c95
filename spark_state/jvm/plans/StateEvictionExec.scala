package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}

/**
 * Hands on the rows of its child as they are, and tells the task which rows the operator above will
 * evict from its stores.
 *
 * @param evictions  by the name of the store
 * @param checkpoint where the states of the query's operators are
 * @param operator   the id of the operator above
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
   * The same rows. Before the first one, the task is told what the operator will evict; and what
   * counts the rows that its stores remove for it, if they may. Tasks get the arguments, and not the
   * plan that calls this.
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
