package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.TimeUnit

import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/** Deletes files of one store that no version needs which is to stay restorable. */
private[cowstate] final class StateFileCleanup(
    checkpoints: StateCheckpoints, conf: StateStoreConf) {
  private var cleanedBefore = 0L
  private var sweptNs = Option.empty[Long]

  /**
   * Delete what no version needs from `minBatchesToRetain` before `head` on, of at most
   * `maxVersionsToDeletePerMaintenance` versions at once. What that limit leaves is for the next
   * time, whether there were batches or not.
   */
  def deleteUnneeded(head: StateId): Unit = synchronized {
    val oldest = head.version - conf.minVersionsToRetain
    if (oldest > 0 && oldest - cleanedBefore >= math.max(1, conf.minVersionsToDelete)) {
      val files = checkpoints.list()
      val deletable = files.deletable(head, oldest).map(f => f.version -> f.toString) ++
        files.deletableAdopted(head, oldest).map(f => f.version -> f.toString)
      val limit = conf.maxVersionsToDeletePerMaintenance
      val versions = deletable.map(_._1).distinct.sorted
      val chosen = (if (limit > 0) versions.take(limit) else versions).toSet
      deletable.foreach { case (v, name) => if (chosen(v)) checkpoints.directory.delete(name) }
      if (chosen.size == versions.size) cleanedBefore = oldest
    }
  }

  /** Unfinished files of killed writers grow old at any time: to look once an hour is enough. */
  def deleteAbandoned(): Unit = synchronized {
    val now = System.nanoTime
    if (sweptNs.forall(now - _ > TimeUnit.HOURS.toNanos(1))) {
      sweptNs = Some(now)
      checkpoints.directory.deleteAbandoned()
    }
  }
}
