package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  LoadedState, StateFileCleanup, TakenView
}

/**
 * Maintenance of a store, in Spark's maintenance thread while batches go on: writes a snapshot from
 * a view when the changelogs since the last snapshot outweigh the snapshot, merges small
 * changelogs, and deletes files that no retained version needs.
 */
private[cowstate] final class StoreMaintenance(
    store: ProvidedStore, held: HeldState, restores: StateRestores)
  extends Logging {
  private val checkpoints = store.checkpoints
  private val handover = held.handover
  private val cleanup = new StateFileCleanup(checkpoints, store.storeConf)

  /** Write a snapshot if one is due, and merge changelogs. */
  def compact(): Unit = triedAgainLater("writing a snapshot") {
    held.current.filter(state => !state.isDamaged && checkpoints.directory.mayWrite) match {
      case None => handover.clear()
      case Some(state) if state.snapshotIsDue || handover.isForced =>
        handover.take(state).orElse(held.viewBetweenBatches(state)).foreach(writeSnapshot)
        mergeChangelogs(state)
      case Some(state) =>
        val head = state.versions.head.version
        handover.clear()
        mergeChangelogs(state)
        restores.reportCovered(head)
    }
  }

  private def mergeChangelogs(state: LoadedState): Unit =
    Iterator.continually(state.mergeable).takeWhile(_.nonEmpty).forall { files =>
      val into = StateFileName.merging(files, state.generation, StateId.newUnique())
      val merged = checkpoints.merge(files, into, state.memory.account)
      merged.foreach { size =>
        state.merged(files, into, size)
        store.metrics.changelogsMerged(size.bytes)
        logInfo(s"$store merged ${files.size} files of changes up to version ${into.version}: " +
          s"${size.bytes} bytes")
      }
      merged.isDefined // A later maintenance may have memory for the next files.
    }: Unit

  /** Write a view as a snapshot, and release the view. */
  def writeSnapshot(taken: TakenView): Unit = {
    val started = System.nanoTime
    val version = taken.at.version
    try {
      val name = StateFileName.ofSnapshot(taken.at, taken.state.generation, StateId.newUnique())
      val size = checkpoints.writeSnapshot(name, taken.view)
      taken.state.snapshotWritten(taken, size)
      store.metrics.snapshotWritten(version, size.bytes, ms = (System.nanoTime - started) / 1000000)
      logInfo(s"$store wrote a snapshot of version $version: ${size.bytes} bytes")
      restores.reportCovered(version)
    } finally taken.view.release()
  }

  /** Delete files that no retained version needs, and unfinished files of killed writers. */
  def deleteFiles(): Unit = triedAgainLater("deleting orphans") {
    cleanup.sweepOrphans()
    held.current.filter(_ => checkpoints.directory.mayWrite)
      .foreach(state => cleanup.deleteUnneeded(state.versions.head))
  }

  /**
   * Log a failure of maintenance. If the failure reached Spark, Spark would unload the provider and
   * the state in memory.
   */
  private def triedAgainLater(what: String)(f: => Unit): Unit =
    try f
    catch {
      case NonFatal(e) => logWarning(s"$store: $what failed, it is tried again later", e)
    }
}
