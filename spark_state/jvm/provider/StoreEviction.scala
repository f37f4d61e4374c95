package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.cowstate.map.RowTime

/**
 * Eviction of old rows from a store by an operator, in one batch. A row is old if its time is
 * `upTo` or before. The operator iterates over the store only to find the old rows. So the store
 * may return the old rows alone, see EvictionScan.
 *
 * @param timesIn  name of the store whose rows have the time: normally the store itself. If a join
 *                 evicts by value, the join iterates over the store of counts, and `timesIn` is
 *                 the store of values
 * @param isSilent true if the operator puts out nothing for evicted rows
 */
private[cowstate] final case class StoreEviction(
    time: RowTime, upTo: Long, timesIn: String, isSilent: Boolean = false) {

  /** True if a store may remove rows on behalf of the operator, see LoneOldValues. */
  def leavesTo(store: String): Boolean = isSilent && timesIn != store
}
