package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState

/** Batch that writes to a store. The batch hears once of the store's end: committed or aborted. */
private[cowstate] trait StoreBatch {
  /** True if a snapshot is written before the commit returns. */
  def forcesSnapshot: Boolean
  /** Spark's checkpoint id of the state upon which the batch begins; None if Spark gives no id. */
  def askedFor: Option[String]
  /**
   * Prepare for writing, at the latest before the first bytes of the changelog. From then on the
   * run of the query writes to the store's directory, and new files outrank the files of earlier
   * writers.
   */
  def beginWriting(state: LoadedState): Unit
  def committed(written: CowStateStore): Unit
  def aborted(): Unit
}
