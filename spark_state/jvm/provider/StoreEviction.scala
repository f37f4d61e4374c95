package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * Which rows of a store an operator evicts in a batch: those whose time is `upTo` or before. It asks
 * the store for all its rows to find them, and for no other reason.
 *
 * @param timesIn  the store of the same operator and partition whose rows have the time; another
 *                 one for what a join keeps of its keys
 * @param isSilent whether the operator puts out nothing of the rows that it evicts
 */
private[cowstate] final case class StoreEviction(
    time: RowTime, upTo: Long, timesIn: String, isSilent: Boolean = false) {

  /** Whether the operator leaves it to a store to remove what it can: see LoneOldValues. */
  def leavesTo(store: String): Boolean = isSilent && timesIn != store
}
