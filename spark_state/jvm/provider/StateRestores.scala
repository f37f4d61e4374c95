package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import java.util.UUID

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, CowStateMissingException, StateId
}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  ChangeFeed, Damaged, LoadedState, QueryPartitions, SnapshotSchedule, StateFiles
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{MemoryAccount, StateMemory}

/**
 * Restores states of one store from its files, and reads the changes of batches. Each restored
 * state belongs to the caller.
 */
private[cowstate] final class StateRestores(store: ProvidedStore) extends Logging {
  import store._

  private val owner = store.toString
  private val partitions = new QueryPartitions(id.checkpointRootLocation, hadoopConf)
  private val attempts = new WholeAttempts(id, directoryOf(_).list())

  /** Return an empty state, which counts as the version of `at`. */
  def empty(at: StateId): LoadedState = {
    val files = checkpoints.list()
    newState(at, files.nextGeneration)
  }

  /** Return an empty state, to be filled with the rows of `at`. */
  def newState(at: StateId, generation: Long): LoadedState = {
    val account = new MemoryAccount(conf.maxMemoryBytes, owner)
    val memory = StateMemory.of(conf, account, owner)
    val map = new CopyOnWritePagedMap(memory, shape.prefixOf(), newChecksums())
    new LoadedState(
      memory, new VersionedState(map, memory, storeConf.maxVersionsToRetainInMemory, at),
      at, generation, new SnapshotSchedule(storeConf.minDeltasForSnapshot))
  }

  /** Restore a version from files. */
  def load(version: Long, unique: Option[String]): LoadedState = {
    val files = filesOf(version)
    load(files, stateAt(version, unique, files))
  }

  /**
   * List the files of the store. Of the rescaled files of `version`, keep only the files for the
   * number of partitions that the query has at `version`.
   */
  def filesOf(version: Long): StateFiles =
    checkpoints.list().dealtOut(version, partitions.at)

  def stateAt(version: Long, unique: Option[String], files: StateFiles): StateId =
    attempts.stateAt(version, unique, files).getOrElse(throw missing(version, unique, files))

  /**
   * Return the state of `version` that the attempt `beside` made. The task already uses a state of
   * this attempt in another store of the operator, and all stores must take the same attempt.
   *
   * If the attempt made no state in this store, return the state that counts as `version`, for
   * example a rescaled state. Throws CowStateException if another attempt made the state that
   * counts.
   */
  def stateBeside(beside: String, version: Long, files: StateFiles): StateId =
    files.stateAt(version, Some(beside)).getOrElse {
      val at = stateAt(version, None, files)
      if (files.isOfAttempt(at)) {
        throw CowStateException.ofOtherAttempt(checkpoints.directory.url, at, beside)
      }
      at
    }

  def load(files: StateFiles, at: StateId): LoadedState = {
    val version = at.version
    val started = System.nanoTime
    val restored = restore(files, at, Damaged())
    restored.loadMs = (System.nanoTime - started) / 1000000
    logInfo(s"$owner restored version $version in ${restored.loadMs} ms")
    restored
  }

  /**
   * Restore a state. If a snapshot is damaged, use the previous snapshot and the later changelogs.
   * If a merged file is damaged, use the files from before the merge, if they are still there.
   */
  private def restore(
      files: StateFiles, at: StateId, damaged: Damaged): LoadedState = {
    val lineage = files.lineageOf(at, damaged.own, damagedAdopted = damaged.adopted) match {
      case Right(whole) => whole
      case Left(gap) =>
        throw CowStateMissingException.onTheWay(checkpoints.directory.url, at, gap, damaged.names)
    }
    val state = newState(at, files.nextGeneration)
    try {
      state.restored(checkpoints.restore(lineage, state.versions.map))
      validate(state)
      lineage.snapshot.foreach(file => reportCovered(file.version))
      state
    } catch {
      case e: CowStateException if damaged.withFileIn(lineage, e).isDefined =>
        logError(s"$owner: a file cannot be used, going back to those before it", e)
        state.close()
        try {
          val restored = restore(files, at, damaged.withFileIn(lineage, e).get)
          metrics.filePassedOver()
          restored
        } catch { case later: CowStateException => later.addSuppressed(e); throw later }
      case e: Throwable =>
        state.close()
        throw e
    }
  }

  private def validate(state: LoadedState): Unit = if (storeConf.formatValidationEnabled) {
    val (rows, release) = state.versions.entries(
      state.versions.head, shape.keyFields, shape.valueFields)
    try {
      rows.take(1).foreach { case (key, value) =>
        StateStoreProvider.validateStateRowFormat(
          key, shape.keySchema, value, shape.valueSchema, id, storeConf)
      }
    } finally release()
  }

  private def missing(
      version: Long, unique: Option[String], files: StateFiles): CowStateMissingException =
    CowStateMissingException.ofVersion(
      checkpoints.directory.url, version, unique, files.latestVersion, files.latestOwn.isDefined,
      storeConf.minVersionsToRetain)

  /** Read the changes of each batch, from the batch that made `startVersion` on. */
  def changes(
      startVersion: Long, endVersion: Long, endVersionStateStoreCkptId: Option[String])
      : ChangeFeed = {
    val files = filesOf(endVersion)
    val end = stateAt(endVersion, endVersionStateStoreCkptId, files)
    val url = checkpoints.directory.url
    ChangeFeed.to(end, startVersion, files, checkpoints, shape) match {
      case Right(feed) => feed
      case Left(gap) => files.lineageOf(end) match {
          case Right(_) => throw CowStateException.noChanges(url, gap, files.firstWithChanges)
          case Left(lost) => throw CowStateMissingException.onTheWay(url, end, lost, Nil)
        }
    }
  }

  /**
   * Tell Spark's coordinator that a restore of this version reads little: the version has a
   * snapshot, or no snapshot is due. After a while without such reports, Spark assumes that
   * maintenance fails, and forces snapshots.
   */
  def reportCovered(version: Long): Unit = if (storeConf.reportSnapshotUploadLag) {
    val run = UUID.fromString(StateStoreProvider.getRunId(hadoopConf))
    StateStoreProvider.coordinatorRef.foreach(
      _.snapshotUploaded(StateStoreProviderId(id, run), version, System.currentTimeMillis))
  }
}
