package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.TimeUnit

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/** Retention and orphan sweep of one store: deletes files that no retained version needs. */
private[cowstate] final class StateFileCleanup(
    checkpoints: StateCheckpoints, conf: StateStoreConf) {
  private var cleanedBefore = 0L
  private var sweptNs = Option.empty[Long]
  private var whole = Set.empty[StateFileName]

  /**
   * Delete the files that none of the last `minBatchesToRetain` versions up to `head` needs, of at
   * most `maxVersionsToDeletePerMaintenance` versions at once. What that limit leaves goes the next
   * time, whether there were batches or not. Nothing is deleted for the sake of a snapshot or a
   * merged file that a power failure or somebody has cut.
   */
  def deleteUnneeded(head: StateId): Unit = synchronized {
    val oldest = head.version - conf.minVersionsToRetain
    if (oldest > 0 && oldest - cleanedBefore >= math.max(1, conf.minVersionsToDelete)) {
      val deletable = unneeded(checkpoints.list(), head, oldest, Set.empty).names
      val limit = conf.maxVersionsToDeletePerMaintenance
      val versions = deletable.map(_._1).distinct.sorted
      val chosen = (if (limit > 0) versions.take(limit) else versions).toSet
      checkpoints.directory.delete(deletable.collect { case (v, name) if chosen(v) => name })
      if (chosen.size == versions.size) cleanedBefore = oldest
    }
  }

  /** Looks at each file that stands for others, until it has seen once that the file is whole. */
  @tailrec
  private def unneeded(
      files: StateFiles, head: StateId, oldest: Long, cut: Set[StateFileName]): Deletable = {
    val deletable = files.deletable(head, oldest, cut)
    deletable.standIns.filterNot(file => whole(file) || checkpoints.isWhole(file)) match {
      case Nil =>
        whole = deletable.standIns.toSet
        deletable
      case more => unneeded(files, head, oldest, cut ++ more)
    }
  }

  /** Unfinished files of killed writers may grow old at any time: a look once an hour is enough. */
  def sweepOrphans(): Unit = synchronized {
    val now = System.nanoTime
    if (sweptNs.forall(now - _ > TimeUnit.HOURS.toNanos(1))) {
      sweptNs = Some(now)
      checkpoints.directory.sweepOrphans()
    }
  }
}
