package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{
  JoinSide, LeftSide, RightSide
}

/**
 * Names of the two stores of one side of a join: `counts` has the number of values of each key,
 * `values` has the values, by key and index.
 */
private[cowstate] final class JoinStores(side: JoinSide) {
  val counts: String = s"$side-keyToNumValues"
  val values: String = s"$side-keyWithIndexToValue"
  private def names: Seq[String] = Seq(counts, values)
}

private[cowstate] object JoinStores {
  val Left = new JoinStores(LeftSide)
  val Right = new JoinStores(RightSide)

  def of(side: JoinSide): JoinStores = if (side == LeftSide) Left else Right

  /**
   * Return the stores that the tasks of a join write together with a store. Empty for a store of
   * another operator.
   */
  def besides(store: String): Seq[String] = {
    val all = Left.names ++ Right.names
    if (all.contains(store)) all.filter(_ != store) else Nil
  }
}
