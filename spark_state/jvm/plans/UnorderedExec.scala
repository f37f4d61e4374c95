package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SortOrder
import org.apache.spark.sql.execution.SparkPlan

/**
 * Puts out the rows of its child, and claims no order of the rows.
 *
 * An aggregate for sorted input claims to put out rows sorted by key. The claim is false if the
 * input is only grouped. A plan on top of the batch, for example in a function of `foreachBatch`,
 * would then leave out a necessary sort.
 */
private[cowstate] case class UnorderedExec(child: SparkPlan) extends RowsOfChildExec {
  override def outputOrdering: Seq[SortOrder] = Nil

  override protected def doExecute(): RDD[InternalRow] = child.execute()

  override protected def withNewChildInternal(newChild: SparkPlan): UnorderedExec =
    copy(child = newChild)
}
