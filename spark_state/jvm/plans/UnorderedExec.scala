package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SortOrder
import org.apache.spark.sql.execution.SparkPlan

/**
 * The rows of its child, of whose order it says nothing.
 *
 * An aggregate for sorted input says that its output is sorted by key, which is not so where its
 * input is only grouped. Whoever plans with the batch, as functions of `foreachBatch` do, would leave
 * out a sort that is needed.
 */
private[cowstate] case class UnorderedExec(child: SparkPlan) extends RowsOfChildExec {
  override def outputOrdering: Seq[SortOrder] = Nil

  override protected def doExecute(): RDD[InternalRow] = child.execute()

  override protected def withNewChildInternal(newChild: SparkPlan): UnorderedExec =
    copy(child = newChild)
}
