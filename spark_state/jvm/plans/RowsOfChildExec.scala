package org.apache.spark.sql.execution.streaming.state.cowstate.plans

import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.UnaryExecNode

/** Operator of a plan that puts out the rows of its child unchanged. */
private[cowstate] trait RowsOfChildExec extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
}
