package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.util.concurrent.TimeUnit

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}

/**
 * Cleanup of a store: deletes files that no retained version needs, and remains of killed writers.
 */
private[cowstate] final class StateFileCleanup(
    checkpoints: StateCheckpoints, conf: StateStoreConf) {
  private var cleanedBefore = 0L
  private var sweptNs = Option.empty[Long]
  private var whole = Set.empty[StateFileName]

  /**
   * Delete the files that none of the last `minBatchesToRetain` versions up to `head` needs. One
   * call deletes the files of at most `maxVersionsToDeletePerMaintenance` versions. Later calls
   * delete the remaining files, even without new batches. A truncated snapshot or merged file, cut
   * by a power failure or a user, replaces no file.
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

  /**
   * Return the files to delete. Checks each file that replaces deleted files, unless an earlier
   * call has found the file whole. `cut`: truncated files, which replace no file.
   */
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

  /**
   * Delete the unfinished files of killed writers, at most once an hour: the deletion is not
   * urgent.
   */
  def sweepOrphans(): Unit = synchronized {
    val now = System.nanoTime
    if (sweptNs.forall(now - _ > TimeUnit.HOURS.toNanos(1))) {
      sweptNs = Some(now)
      checkpoints.directory.sweepOrphans()
    }
  }
}
