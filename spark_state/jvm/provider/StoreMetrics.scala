package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState

/**
 * Metrics of one store for a batch: about the batch, the state in memory, and the files written by
 * maintenance since the batch before.
 */
private[cowstate] final class StoreMetrics {
  import CowStateMetrics._

  private val snapshotMs = new AtomicLong
  private val snapshotBytes = new AtomicLong
  private val mergedBytes = new AtomicLong
  private val uploadedSnapshot = new AtomicLong(-1L)
  private val heldVersions = new AtomicLong
  private val missedVersions = new AtomicLong
  private val passedOver = new AtomicLong

  def snapshotWritten(version: Long, bytes: Long, ms: Long): Unit = {
    snapshotBytes.set(bytes)
    uploadedSnapshot.set(version)
    snapshotMs.set(ms)
  }

  def changelogsMerged(bytes: Long): Unit = mergedBytes.addAndGet(bytes)

  /** Count a batch or a reader that begins with a version. `isHeld`: the version is in memory. */
  def versionAsked(isHeld: Boolean): Unit =
    (if (isHeld) heldVersions else missedVersions).incrementAndGet()

  /** Count a restore that passed over a damaged file. */
  def filePassedOver(): Unit = passedOver.incrementAndGet()

  /** Return the metrics of a batch. Files written by maintenance are reported once. */
  def of(
      id: StateStoreId,
      state: LoadedState,
      keys: Long,
      commitMs: Long,
      changelogBytes: Long,
      forcesSnapshot: Boolean): StateStoreMetrics = {
    val map = state.versions.map
    val custom: Map[StateStoreCustomMetric, Long] = Map(
      CommitMs -> commitMs,
      LoadMs -> state.takeLoadMs(),
      SnapshotMs -> snapshotMs.getAndSet(0),
      ChangelogBytes -> changelogBytes,
      SnapshotBytes -> snapshotBytes.getAndSet(0),
      MergedBytes -> mergedBytes.getAndSet(0),
      Pages -> map.pageCount,
      DeadBytes -> map.deadBytes,
      MappedBytes -> map.synchronized(state.memory.mappedBytes),
      RehashPercent -> map.rehashPercent,
      ForcedSnapshots -> (if (forcesSnapshot) 1L else 0L),
      CurrentVersionBytes -> map.rowBytes,
      HeldVersions -> heldVersions.get,
      MissedVersions -> missedVersions.get,
      PassedOver -> passedOver.getAndSet(0))
    val instance: Map[StateStoreInstanceMetric, Long] = Map(
      StateStoreSnapshotLastUploadInstanceMetric(Some(id.partitionId), id.storeName) ->
        uploadedSnapshot.get)
    StateStoreMetrics(keys, state.memory.account.bytes, custom, instance)
  }
}
