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

  override protected def doExecute(): RDD[InternalRow] = {
    // Tasks get these, and not the whole plan.
    val (evictionsOfTask, query, above) = (evictions, checkpoint, operator)
    val oldRowCount = longMetric("numOldRows")
    child.execute().mapPartitionsInternal { rows =>
      StoresOfTask.willEvict(query, above, evictionsOfTask, oldRowCount)
      rows
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): StateEvictionExec =
    copy(child = newChild)
}
