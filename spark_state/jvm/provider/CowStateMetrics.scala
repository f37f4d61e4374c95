package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state._

/**
 * Metrics of the provider in StreamingQueryProgress, in addition to the metrics of every provider.
 */
private[cowstate] object CowStateMetrics {
  val CommitMs = StateStoreCustomTimingMetric(
    "cowstateCommitMs", "cowstate: time to write changelogs and commit")
  val LoadMs = StateStoreCustomTimingMetric(
    "cowstateLoadMs", "cowstate: time to restore state from files")
  val SnapshotMs = StateStoreCustomTimingMetric(
    "cowstateSnapshotMs", "cowstate: time that the last snapshot took in the background")
  val ChangelogBytes = sizeMetric(
    "cowstateChangelogBytes", "cowstate: bytes of changelogs written")
  val SnapshotBytes = sizeMetric(
    "cowstateSnapshotBytes", "cowstate: bytes of the last snapshot")
  val MergedBytes = sizeMetric(
    "cowstateMergedBytes", "cowstate: bytes of changelogs merged in the background")
  val Pages = StateStoreCustomSumMetric("cowstatePages", "cowstate: pages of records")
  val DeadBytes = sizeMetric(
    "cowstateDeadBytes", "cowstate: bytes of records that are dead and not freed yet")
  val MappedBytes = sizeMetric(
    "cowstateMappedBytes", "cowstate: bytes of files on local disks that hold the state")
  val RehashPercent = StateStoreCustomSumMetric(
    "cowstateRehashPercent", "cowstate: progress of incremental rehashing, 100 when done, summed")
  // Same names as in HDFSBackedStateStoreProvider, for tools that watch queries on that provider.
  val ForcedSnapshots = StateStoreCustomSumMetric(
    "forceSnapshotCount", "number of stores that had forced snapshot")
  val CurrentVersionBytes = sizeMetric(
    "stateOnCurrentVersionSizeBytes", "estimated size of state only on current version")
  val HeldVersions = StateStoreCustomSumMetric(
    "loadedMapCacheHitCount", "count of cache hit on states cache in provider")
  val MissedVersions = StateStoreCustomSumMetric(
    "loadedMapCacheMissCount", "count of cache miss on states cache in provider")
  val PassedOver = StateStoreCustomSumMetric(
    "numSnapshotsAutoRepaired", "number of snapshots that were automatically repaired")

  val All: Seq[StateStoreCustomMetric] = Seq(
    CommitMs, LoadMs, SnapshotMs, ChangelogBytes, SnapshotBytes, MergedBytes, Pages, DeadBytes,
    MappedBytes, RehashPercent, ForcedSnapshots, CurrentVersionBytes, HeldVersions, MissedVersions,
    PassedOver)

  /**
   * Make a StateStoreCustomSizeMetric. Spark 4.3 gave the constructor a third parameter, a flag
   * that is off by default. The constructor is found at run time, so one jar serves 4.2 and 4.3. If
   * the constructor is different, make a sum metric, and Spark shows bytes as a number.
   */
  private def sizeMetric(name: String, description: String): StateStoreCustomMetric = {
    val constructor = classOf[StateStoreCustomSizeMetric].getConstructors.head
    val texts = Seq(name, description)
    val (ofTexts, ofFlags) = constructor.getParameterTypes.splitAt(texts.size)
    if (ofTexts.forall(_ == classOf[String]) && ofFlags.forall(_ == java.lang.Boolean.TYPE)) {
      val flags = ofFlags.map(_ => java.lang.Boolean.FALSE)
      constructor.newInstance(texts ++ flags: _*).asInstanceOf[StateStoreCustomMetric]
    } else {
      StateStoreCustomSumMetric(name, description)
    }
  }
}
