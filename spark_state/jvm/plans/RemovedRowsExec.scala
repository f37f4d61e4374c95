package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan

/**
 * Hands on the rows of the operator below, and gives its stores the metric by which it counts the
 * rows that it removes. So stores can remove rows for it.
 *
 * @param checkpoint where the states of the query's operators are
 * @param operator   the id of the operator below
 */
private[cowstate] case class RemovedRowsExec(checkpoint: String, operator: Long, child: SparkPlan)
  extends RowsOfChildExec {
  override protected def doExecute(): RDD[InternalRow] = {
    // Tasks get these, and not the whole plan.
    val (query, below) = (checkpoint, operator)
    val removedCount = child.longMetric("numRemovedStateRows")
    child.execute().mapPartitionsInternal { rows =>
      StoresOfTask.countsRemoved(query, below, removedCount)
      rows
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): RemovedRowsExec =
    copy(child = newChild)
}
