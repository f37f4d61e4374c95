package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.cowstate.map.RowTime

/**
 * Eviction of an operator from a store in a batch: the operator evicts the rows whose time is
 * `upTo` or before. The operator asks the store for all rows only to find the rows to evict.
 *
 * @param timesIn  name of the store whose rows have the time: normally the store of the eviction.
 *                 If a join evicts by value, the eviction is from the store of counts, and
 *                 `timesIn` is the store of values
 * @param isSilent true if the operator puts out nothing for evicted rows
 */
private[cowstate] final case class StoreEviction(
    time: RowTime, upTo: Long, timesIn: String, isSilent: Boolean = false) {

  /** True if a store may remove rows on behalf of the operator, see LoneOldValues. */
  def leavesTo(store: String): Boolean = isSilent && timesIn != store
}
