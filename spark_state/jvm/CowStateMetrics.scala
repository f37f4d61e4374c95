package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.execution.streaming.state._

/** The provider's metrics in StreamingQueryProgress, beside those that every provider has. */
private[cowstate] object CowStateMetrics {
  val CommitMs = StateStoreCustomTimingMetric(
    "cowstateCommitMs", "cowstate: time to write changelogs and commit")
  val LoadMs = StateStoreCustomTimingMetric(
    "cowstateLoadMs", "cowstate: time to restore state from files")
  val SnapshotMs = StateStoreCustomTimingMetric(
    "cowstateSnapshotMs", "cowstate: time that the last snapshot took in the background")
  val ChangelogBytes = StateStoreCustomSizeMetric(
    "cowstateChangelogBytes", "cowstate: bytes of changelogs written")
  val SnapshotBytes = StateStoreCustomSizeMetric(
    "cowstateSnapshotBytes", "cowstate: bytes of the last snapshot")
  val Pages = StateStoreCustomSumMetric("cowstatePages", "cowstate: pages of records")
  val DeadBytes = StateStoreCustomSizeMetric(
    "cowstateDeadBytes", "cowstate: bytes of records that are dead and not freed yet")
  val RehashPercent = StateStoreCustomSumMetric(
    "cowstateRehashPercent", "cowstate: progress of incremental rehashing, 100 when done, summed")

  val All: Seq[StateStoreCustomMetric] = Seq(
    CommitMs, LoadMs, SnapshotMs, ChangelogBytes, SnapshotBytes, Pages, DeadBytes, RehashPercent)
}
