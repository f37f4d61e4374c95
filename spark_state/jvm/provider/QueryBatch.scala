package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState

/**
 * One batch of a query on one store. The batch holds the store's lock until the commit or abort.
 *
 * A batch claims the store's directory for its writer, so that an outdated writer is refused. A
 * batch of a streaming query claims the directory when the store is opened, before the first output
 * row. Any other writer claims the directory with its first changelog: Spark 4.2 opens a store for
 * writing even to read the state of a join, and a reader must not claim the directory.
 *
 * @param base            version upon which the batch begins
 * @param isSnapshotAsked true if Spark asks for a snapshot at the commit
 */
private[cowstate] final class QueryBatch(
    store: ProvidedStore,
    held: HeldState,
    maintenance: StoreMaintenance,
    base: Long,
    isSnapshotAsked: Boolean,
    override val askedFor: Option[String])
  extends StoreBatch {
  private val directory = store.checkpoints.directory
  private val isOfRun = StoresOfRuns.isOfRun(store.id, store.hadoopConf)
  private val isFirst =
    Option(TaskContext.get()).forall(t => t.attemptNumber() == 0 && t.stageAttemptNumber() == 0)
  private var continues = false
  private var hasBegun = false

  override def forcesSnapshot: Boolean = isSnapshotAsked && !directory.isInStore

  /** Open the store. `loadEmpty`: begin upon an empty state. */
  def open(loadEmpty: Boolean): CowStateStore = {
    held.lock.acquire(this)
    try {
      held.replaceEarlierRun()
      if (isOfRun) directory.beginWriting(base + 1): Unit
      val (state, at) = if (loadEmpty) held.installEmpty(base) else found
      continues = state.begin(at)
      if (isOfRun) beginWriting(state)
      CowStateStore.open(store, state, at, this)
    } catch {
      case e: Throwable =>
        held.lock.release(this)
        throw e
    }
  }

  private def found: (LoadedState, StateId) = {
    val beside = if (askedFor.isEmpty) begunBeside else None
    held.find(base, askedFor.orElse(beside)).getOrElse(held.reload(base, askedFor, beside))
  }

  /**
   * If the task is writing another store of the same operator and partition from the same version,
   * return the id of the attempt that made the other store's base.
   */
  private def begunBeside: Option[String] = {
    val id = store.id
    StoresOfTask.ofOperatorOf(id).collectFirst {
      case other: CowStateStore
          if other.isWriting && other.id.partitionId == id.partitionId && other.id != id &&
            other.version == base => other.begunUpon
    }
  }

  override def beginWriting(state: LoadedState): Unit = if (!hasBegun) {
    val isOutdated = directory.beginWriting(base + 1)
    if (!isFirst || !continues || isOutdated) state.outrank(store.checkpoints.list())
    hasBegun = true
  }

  override def committed(written: CowStateStore): Unit = {
    try {
      if (forcesSnapshot) {
        held.handover.clear()
        maintenance.writeSnapshot(written.state.takeView())
      } else {
        held.handover.leave(written.state.takeView(), isForced = isSnapshotAsked)
      }
    } finally held.lock.release(this)
    if (store.storeConf.commitValidationEnabled) {
      StateStore.reportCommitToCoordinator(written.newState.version, store.id, store.hadoopConf)
    }
  }

  override def aborted(): Unit = held.lock.release(this)
}
