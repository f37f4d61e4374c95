package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateLoadException, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState

/**
 * Versions replayed from the snapshot of one version, and from no other snapshot, for Spark's
 * readers of old states. A replayed state belongs to the opened store alone: the state in memory
 * does not change.
 */
private[cowstate] final class StateReplay(store: ProvidedStore, restores: StateRestores) {
  private val checkpoints = store.checkpoints

  def writable(from: ReplayedVersion, to: ReplayedVersion): CowStateStore = {
    val state = replayed(from, to)
    CowStateStore.open(store, state, state.versions.head, new ReplayedBatch(state, to))
  }

  def readable(from: ReplayedVersion, to: ReplayedVersion): CowReadStore =
    CowReadStore.owning(store, replayed(from, to))

  private def replayed(from: ReplayedVersion, to: ReplayedVersion): LoadedState =
    CowStateLoadException.loading(to.version) {
      val files = restores.filesOf(to.version)
      val end = restores.stateAt(to.version, to.unique, files)
      val lineage = files.lineageOf(end, fromSnapshot = Some(from.version)) match {
        case Right(whole)
            if from.unique.map(StateId.uniqueOf)
              .forall(unique => whole.snapshot.forall(_.unique == unique)) => whole
        case _ => throw StateStoreErrors.stateStoreSnapshotFileNotFound(
            s"${checkpoints.directory.url}, version ${from.version}", ProvidedStore.ProviderName)
      }
      val state = restores.newState(end, files.nextGeneration)
      try {
        checkpoints.restore(lineage, state.versions.map)
        state
      } catch {
        case e: Throwable =>
          state.close()
          throw e
      }
    }

  private final class ReplayedBatch(state: LoadedState, base: ReplayedVersion) extends StoreBatch {
    override def forcesSnapshot: Boolean = false
    override def askedFor: Option[String] = base.unique
    override def beginWriting(state: LoadedState): Unit =
      if (checkpoints.directory.beginWriting(base.version + 1)) state.outrank(checkpoints.list())
    override def committed(written: CowStateStore): Unit = state.close()
    override def aborted(): Unit = state.close()
  }
}

/** Version in a request to replay. `unique`: id of the state in checkpoint format 2. */
private[cowstate] final case class ReplayedVersion(version: Long, unique: Option[String])
