package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._

/**
 * Makes states of one store out of its files, and tells what batches have changed. A state belongs
 * to whoever asked for it.
 *
 * @param owner whose states they are, for errors and logs
 */
private[cowstate] final class StateRestores(
    id: StateStoreId,
    owner: String,
    shape: StoreShape,
    storeConf: StateStoreConf,
    hadoopConf: Configuration,
    checkpoints: StateCheckpoints,
    metrics: StoreMetrics)
  extends Logging {
  private val conf = CowStateConf(storeConf)
  private val partitions = new QueryPartitions(id.checkpointRootLocation, hadoopConf)
  private val attempts =
    new WholeAttempts(id, new PlacedStateDirectory(_, conf.store, hadoopConf).list())

  /** A state without rows, which counts as that version. */
  def empty(at: StateId): LoadedState = {
    val files = checkpoints.list()
    newState(at, files.nextGeneration)
  }

  private def newState(at: StateId, generation: Long): LoadedState = {
    val account = new MemoryAccount(conf.maxMemoryBytes, owner)
    val memory = StateMemory.of(conf, account, owner)
    val map = new CopyOnWritePagedMap(
      memory, shape.prefixOf(), RowChecksums(storeConf, id.toString))
    new LoadedState(
      memory, new VersionedState(map, memory, storeConf.maxVersionsToRetainInMemory, at),
      at, generation, new SnapshotSchedule(storeConf.minDeltasForSnapshot))
  }

  /** Restore a version from files. */
  def load(version: Long, unique: Option[String]): LoadedState = {
    val files = filesOf(version)
    load(files, stateAt(version, unique, files))
  }

  /** The directory as it counts for a version. */
  def filesOf(version: Long): StateFiles =
    checkpoints.list().dealtOut(version, partitions.at)

  def stateAt(version: Long, unique: Option[String], files: StateFiles): StateId =
    attempts.stateAt(version, unique, files).getOrElse(throw missing(version, unique, files))

  /**
   * The state that counts as `version` in a task that begins upon the state `beside` in other stores
   * of the operator. Throws CowStateException if another attempt made it.
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
   * Instead of a damaged snapshot, the one before it is read, and the changelogs after that one;
   * instead of a damaged merged file, the files that were merged, if they are still there.
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
      checkpoints.directory.url, version, unique, files, storeConf.minVersionsToRetain)

  /** A state that is restored from the snapshot of a version, and from no other. */
  def replay(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotUnique: Option[String],
      endUnique: Option[String]): LoadedState = {
    val files = filesOf(endVersion)
    val end = stateAt(endVersion, endUnique, files)
    val lineage = files.lineageOf(end, fromSnapshot = Some(snapshotVersion)) match {
      case Right(whole) if snapshotUnique.forall(u => whole.snapshot.forall(_.unique == u)) => whole
      case _ => throw StateStoreErrors.stateStoreSnapshotFileNotFound(
          s"${checkpoints.directory.url}, version $snapshotVersion", CowStateStoreProvider.Name)
    }
    val state = newState(end, files.nextGeneration)
    try {
      checkpoints.restore(lineage, state.versions.map)
      state
    } catch {
      case e: Throwable =>
        state.close()
        throw e
    }
  }

  /** What each batch has changed, from the one that made `startVersion` on. */
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
   * Tell Spark that a restore of this version reads little: there is a snapshot of it, or none is
   * due. If a store does not say so for a while, Spark thinks that its maintenance fails, and
   * forces snapshots.
   */
  def reportCovered(version: Long): Unit = if (storeConf.reportSnapshotUploadLag) {
    val run = UUID.fromString(StateStoreProvider.getRunId(hadoopConf))
    StateStoreProvider.coordinatorRef.foreach(
      _.snapshotUploaded(StateStoreProviderId(id, run), version, System.currentTimeMillis))
  }
}
